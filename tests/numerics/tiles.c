/* AMX on CPUs that lack it: preloaded into a process, this lets it find a CPU with tiles in /proc/cpuinfo, and computes what their
   instructions would when one ends in SIGILL:

       gcc -O3 -mavx2 -mfma -ffp-contract=off -shared -fPIC tests/numerics/tiles.c -o tiles.so -ldl
       LD_PRELOAD=$PWD/tiles.so .venv/bin/python -m tests.campaign --algorithm amx

   Each is decoded from its bytes, as Intel's manual (volume 2) has them, so that a kernel runs as it was built. Sums are those of
   the manual's TDPBF16PS: multiply-adds of f32 whose denormal factors and sums are zeros, channels of a pair apart until the end; and
   of TDPBUSD and its like for other signs, modulo 2^32.
   Shapes that a CPU would refuse end the process with a message. Threads have tiles of their own. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <immintrin.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "sigill.h"

enum { TILES = 8, MOST_ROWS = 16, ROW = 64, NO_PREFIX = 0, P66 = 1, PF3 = 2, PF2 = 3, ASK_PERMISSION = 0x1023 };

typedef struct {
  int configured;
  unsigned rows[TILES], bytes[TILES];
  unsigned char tiles[TILES][MOST_ROWS][ROW];
} State;

static __thread State* state __attribute__((tls_model("initial-exec")));

static void refuse(const char* what) {
  static const char prefix[] = "emulated tiles: ";
  if (write(2, prefix, sizeof prefix - 1) < 0 || write(2, what, strlen(what)) < 0 || write(2, "\n", 1) < 0) _exit(71);
  _exit(70);
}

/* The registers of a context by their numbers in instructions. */
static uint64_t general(const ucontext_t* context, unsigned number) {
  static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return (uint64_t)context->uc_mcontext.gregs[order[number]];
}

typedef struct {
  const unsigned char* address;
  int64_t stride; /* between rows: the index register, scaled */
  unsigned length; /* bytes of the instruction from ModRM on */
} Memory;

static Memory memory_of(const ucontext_t* context, const unsigned char* modrm, unsigned base_high, unsigned index_high) {
  unsigned mod = modrm[0] >> 6, rm = modrm[0] & 7, length = 1;
  uint64_t base = 0;
  int64_t stride = 0;
  int displaced = mod == 1 ? 1 : mod == 2 ? 4 : 0;
  if (rm == 4) {
    unsigned sib = modrm[1], index = (sib >> 3 & 7) | index_high << 3;
    length = 2;
    if (index != 4) stride = (int64_t)(general(context, index) << (sib >> 6));
    if ((sib & 7) == 5 && mod == 0) displaced = 4;
    else base = general(context, (sib & 7) | base_high << 3);
  } else if (rm == 5 && mod == 0) {
    displaced = 4;
    base = (uint64_t)(uintptr_t)(modrm + 5); /* relative to the next instruction */
  } else {
    base = general(context, rm | base_high << 3);
  }
  int32_t displacement = 0;
  if (displaced == 1) displacement = (signed char)modrm[length];
  if (displaced == 4) memcpy(&displacement, modrm + length, 4);
  return (Memory){(const unsigned char*)(uintptr_t)(base + (uint64_t)(int64_t)displacement), stride, length + displaced};
}

static void configure(const unsigned char* from) {
  if (from[0] != 1) refuse("the palette is not 1");
  memset(state, 0, sizeof *state);
  state->configured = 1;
  for (int each = 0; each < TILES; each++) {
    state->bytes[each] = from[16 + 2 * each] | from[17 + 2 * each] << 8;
    state->rows[each] = from[48 + each];
    if (state->bytes[each] > ROW || state->rows[each] > MOST_ROWS) refuse("a tile is too large");
  }
}

static void check_shapes(unsigned sum, unsigned left, unsigned right) {
  if (sum == left || sum == right || left == right) refuse("two operands are one tile");
  unsigned pairs = state->bytes[left] / 4;
  if (state->rows[sum] != state->rows[left] || state->rows[right] != pairs || state->bytes[right] != state->bytes[sum])
    refuse("shapes of a product do not fit");
}

/* Quads of integers: the prefix says which of both has signs. */
static void multiply_quads(unsigned sum, unsigned left, unsigned right, unsigned prefix) {
  int first = prefix == PF3 || prefix == PF2, last = prefix == P66 || prefix == PF2;
  check_shapes(sum, left, right);
  for (unsigned row = 0; row < state->rows[sum]; row++) {
    uint32_t total[16];
    memcpy(total, state->tiles[sum][row], ROW);
    for (unsigned byte = 0; byte < state->bytes[left]; byte++) {
      unsigned char a = state->tiles[left][row][byte];
      for (unsigned lane = 0; lane < state->bytes[sum] / 4; lane++) {
        unsigned char b = state->tiles[right][byte / 4][4 * lane + byte % 4];
        total[lane] += (uint32_t)((first ? (int8_t)a : a) * (last ? (int8_t)b : b));
      }
    }
    memcpy(state->tiles[sum][row], total, ROW);
  }
}

static void multiply(unsigned sum, unsigned left, unsigned right) {
  check_shapes(sum, left, right);
  unsigned pairs = state->bytes[left] / 4, lanes = state->bytes[sum] / 4;
  for (unsigned row = 0; row < state->rows[sum]; row++) {
    uint32_t of_left[16], of_right[16];
    float even[16] = {0}, odd[16] = {0}, total[16];
    memcpy(of_left, state->tiles[left][row], ROW);
    for (unsigned pair = 0; pair < pairs; pair++) {
      memcpy(of_right, state->tiles[right][pair], ROW);
      uint32_t low = of_left[pair] << 16, high = of_left[pair] & 0xffff0000u;
      float a, b;
      memcpy(&a, &low, 4);
      memcpy(&b, &high, 4);
      for (unsigned lane = 0; lane < 16; lane++) {
        union { uint32_t bits; float value; } c = {of_right[lane] << 16}, d = {of_right[lane] & 0xffff0000u};
        even[lane] = __builtin_fmaf(a, c.value, even[lane]);
        odd[lane] = __builtin_fmaf(b, d.value, odd[lane]);
      }
    }
    memcpy(total, state->tiles[sum][row], ROW);
    for (unsigned lane = 0; lane < lanes; lane++) total[lane] += even[lane] + odd[lane];
    memcpy(state->tiles[sum][row], total, ROW);
  }
}

/* Return the length of the instruction from ModRM on; 0 if it is no tile instruction. */
static unsigned execute(const ucontext_t* context, const unsigned char* code) {
  unsigned prefix = code[2] & 3, opcode = code[3], mod = code[4] >> 6, number = code[4] >> 3 & 7;
  Memory memory = mod == 3 ? (Memory){0, 0, 1} : memory_of(context, code + 4, !(code[1] & 0x20), !(code[1] & 0x40));
  if (opcode == 0x49 && prefix == NO_PREFIX && mod != 3) {
    configure(memory.address);
    return memory.length;
  }
  if (opcode == 0x49 && prefix == NO_PREFIX) {
    state->configured = 0;
    return 1;
  }
  if (opcode != 0x49 && opcode != 0x4b && opcode != 0x5c && opcode != 0x5e) return 0;
  if (!state->configured) refuse("tiles are used before they are configured");
  if (opcode == 0x49 && prefix == PF2 && mod == 3) {
    memset(state->tiles[number], 0, sizeof state->tiles[number]);
    return 1;
  }
  if (opcode == 0x4b && (prefix == PF2 || prefix == P66)) { /* tileloadd, tileloaddt1 */
    memset(state->tiles[number], 0, sizeof state->tiles[number]);
    for (unsigned row = 0; row < state->rows[number]; row++)
      memcpy(state->tiles[number][row], memory.address + row * memory.stride, state->bytes[number]);
    return memory.length;
  }
  if (opcode == 0x4b && prefix == PF3) { /* tilestored */
    for (unsigned row = 0; row < state->rows[number]; row++)
      memcpy((unsigned char*)memory.address + row * memory.stride, state->tiles[number][row], state->bytes[number]);
    return memory.length;
  }
  if (opcode == 0x5c && prefix == PF3 && mod == 3) {
    multiply(number, code[4] & 7, ~(code[2] >> 3) & 7);
    return 1;
  }
  if (opcode == 0x5e && mod == 3) {
    multiply_quads(number, code[4] & 7, ~(code[2] >> 3) & 7, prefix);
    return 1;
  }
  return 0;
}

static void on_illegal(int signal_number, siginfo_t* info, void* given) {
  (void)info;
  ucontext_t* context = given;
  const unsigned char* code = (const unsigned char*)(uintptr_t)context->uc_mcontext.gregs[REG_RIP];
  if (state == NULL) {
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (state == MAP_FAILED) refuse("no memory");
  }
  unsigned control = _mm_getcsr();
  _mm_setcsr(0x9fc0); /* denormal numbers are zeros, rounding to nearest, no exceptions */
  /* Three bytes of VEX with map 0F38, 128 bits. */
  int is_vex = code[0] == 0xc4 && (code[1] & 0x1f) == 2 && !(code[2] & 0x84);
  unsigned length = is_vex ? execute(context, code) : 0;
  _mm_setcsr(control);
  if (length) context->uc_mcontext.gregs[REG_RIP] += 4 + length;
  else signal(signal_number, SIG_DFL); /* the instruction ends the process when it is tried again */
}

__attribute__((constructor)) static void install(void) {
  if (catch_sigill(on_illegal) != 0) refuse("no handler of SIGILL");
}

/* What /proc/cpuinfo would say: LLVM's CPUs with tiles are Intel's. */
static int described(void) {
  static char text[1 << 20], line[1 << 14];
  long from = syscall(SYS_openat, AT_FDCWD, "/proc/cpuinfo", O_RDONLY | O_CLOEXEC, 0);
  int to = memfd_create("cpuinfo", MFD_CLOEXEC);
  if (from < 0 || to < 0) refuse("no description of the CPU");
  size_t size = 0;
  for (ssize_t got; size < sizeof text && (got = read((int)from, text + size, sizeof text - size)) > 0;) size += (size_t)got;
  close((int)from);
  for (size_t start = 0; start < size;) {
    const char* end = memchr(text + start, '\n', size - start);
    size_t length = end ? (size_t)(end - text) - start : size - start;
    if (length >= sizeof line - 32) refuse("a line of /proc/cpuinfo is too long");
    memcpy(line, text + start, length);
    line[length] = 0;
    if (strncmp(line, "vendor_id", 9) == 0) strcpy(line, "vendor_id\t: GenuineIntel");
    if (strncmp(line, "flags", 5) == 0) strcat(line, " amx_bf16 amx_int8 amx_tile");
    strcat(line, "\n");
    if (write(to, line, strlen(line)) < 0) refuse("no description of the CPU");
    start += length + 1;
  }
  lseek(to, 0, SEEK_SET);
  return to;
}

static int opened(const char* path, int flags, mode_t mode) {
  return strcmp(path, "/proc/cpuinfo") == 0 ? described() : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
  va_end(list);
  return opened(path, flags, mode);
}

/* Linux refuses permission for tiles that the CPU lacks. */
long syscall(long number, ...) {
  static long (*original)(long, ...);
  va_list list;
  long given[6];
  va_start(list, number);
  for (int each = 0; each < 6; each++) given[each] = va_arg(list, long);
  va_end(list);
  if (number == SYS_arch_prctl && given[0] == ASK_PERMISSION) return 0;
  if (original == NULL) original = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return original(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
