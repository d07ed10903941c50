/* What GCC's vectors have no operator for, as an instruction of 64-bit ARM: none that a comparison and a choice are not as good as. */
#pragma once
