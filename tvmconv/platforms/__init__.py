"""Systems that libraries are for, a folder each with its `Platform`, which an instruction set names (`Isa.platform`)."""
