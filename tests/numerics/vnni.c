/* AVX-VNNI and AVX-VNNI-INT8 on CPUs with AVX2 that lack them: preloaded into a process, this computes what vpdpbusd, vpdpbssd, vpdpbsud,
   vpdpbuud, or vpdpwssd, which LLVM makes of other sums, would when one ends in SIGILL:

       gcc -O3 -mavx2 -shared -fPIC tests/numerics/vnni.c -o vnni.so -ldl

   The instruction is decoded from its bytes, as Intel's manual (volume 2) has them, so that a kernel runs as it was built; its registers
   are those that Linux saved for the handler, in the standard form of XSAVE. Anything else ends the process. */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "sigill.h"

/* The prefixes say which of both has a sign: none, only the last, only the first, and both. */
enum { MAP_0F38 = 2, P66 = 1, F3 = 2, F2 = 3, VPDPBUSD = 0x50, VPDPWSSD = 0x52, XMM = 160, YMM_HIGH = 576, LENGTH = 5 };

static void move(char* area, unsigned number, void* lanes, int wide, int to_lanes) {
  char *low = area + XMM + 16 * number, *high = area + YMM_HIGH + 16 * number, *at = lanes;
  if (to_lanes) {
    memcpy(at, low, 16);
    if (wide) memcpy(at + 16, high, 16);
  } else {
    memcpy(low, at, 16);
    memcpy(high, wide ? at + 16 : (char[16]){0}, 16);
  }
}

static void on_illegal(int signal_number, siginfo_t* info, void* given) {
  (void)info;
  ucontext_t* context = given;
  const unsigned char* code = (const unsigned char*)(uintptr_t)context->uc_mcontext.gregs[REG_RIP];
  /* Three bytes of VEX: W0, registers alone. */
  if (code[0] != 0xc4 || (code[1] & 0x1f) != MAP_0F38 || code[2] & 0x80 || code[4] >> 6 != 3 ||
      (code[3] != VPDPBUSD && (code[3] != VPDPWSSD || (code[2] & 3) != P66))) {
    signal(signal_number, SIG_DFL); /* the instruction ends the process when it is tried again */
    return;
  }
  char* area = (char*)context->uc_mcontext.fpregs;
  int wide = code[2] >> 2 & 1;
  unsigned sum = (code[4] >> 3 & 7) | !(code[1] & 0x80) << 3, right = (code[4] & 7) | !(code[1] & 0x20) << 3;
  uint8_t a[32], b[32];
  int16_t wide_a[16], wide_b[16];
  int prefix = code[2] & 3, first = prefix == F3 || prefix == F2, last = prefix == P66 || prefix == F2;
  int32_t c[8];
  move(area, ~(code[2] >> 3) & 15, a, wide, 1);
  move(area, right, b, wide, 1);
  move(area, sum, c, wide, 1);
  memcpy(wide_a, a, sizeof a);
  memcpy(wide_b, b, sizeof b);
  for (int lane = 0; code[3] == VPDPWSSD && lane < (wide ? 8 : 4); lane++)
    for (int pair = 2 * lane; pair < 2 * lane + 2; pair++)
      c[lane] = (int32_t)((uint32_t)c[lane] + (uint32_t)(wide_a[pair] * wide_b[pair]));
  for (int lane = 0; code[3] == VPDPBUSD && lane < (wide ? 8 : 4); lane++)
    for (int byte = 4 * lane; byte < 4 * lane + 4; byte++) {
      int product = (first ? (int8_t)a[byte] : a[byte]) * (last ? (int8_t)b[byte] : b[byte]);
      c[lane] = (int32_t)((uint32_t)c[lane] + (uint32_t)product);
    }
  move(area, sum, c, wide, 0);
  context->uc_mcontext.gregs[REG_RIP] += LENGTH;
}

__attribute__((constructor)) static void install(void) {
  if (catch_sigill(on_illegal) != 0) _exit(70);
}
