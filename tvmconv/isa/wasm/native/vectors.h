/* Operations that GCC's vectors lack, as instructions of WebAssembly: none that a comparison and a choice are not as good as. */
#pragma once
