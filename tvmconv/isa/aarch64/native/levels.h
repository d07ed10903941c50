/* The vectors for which a provider's operations are compiled (`Isa.levels`), and which of them this CPU has. */
#pragma once

#define LEVELS(EACH) EACH(base)
#define HAS_base 1
