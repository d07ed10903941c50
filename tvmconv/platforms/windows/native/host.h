/* Weights of a network, a lock, and a clock, for its executor (tvmconv/network/emit/native/executor.c), which has `failed` and `no_memory`.
 *
 * As on Linux (linux/native/host.h), weights follow the loaded part of the library's file, or are linked into the program. They begin at
 * a multiple of 64 KiB, the granularity at which Windows maps files. */
#include "threads.h"

typedef HANDLE File;
#include "file_end.h"

typedef struct {
  void* view;
  const unsigned char* bytes;
} Weights;

/* Lock of the free instances of all networks in a library. */
static Lock instances = FREE_LOCK;
static void lock(void) { take_lock(&instances); }
static void unlock(void) { give_lock(&instances); }

/* Weights that are linked into the program. */
extern unsigned char tvmconv_network_weights[] __attribute__((weak));
__asm__(".weak tvmconv_network_weights"); /* GCC omits it for a symbol of which only the address is used */

static int read_at(File file, uint64_t place, void* to, size_t bytes) {
  OVERLAPPED at = {.Offset = (DWORD)place, .OffsetHigh = (DWORD)(place >> 32)};
  DWORD read = 0;
  return ReadFile(file, to, (DWORD)bytes, &read, &at) && read == bytes;
}

/* Opens the file of the library with this function. Paths longer than MAX_PATH need the prefix of MARK characters. */
static HANDLE open_own(void) {
  enum { LONGEST = 32768, MARK = 4 };
  HANDLE file = INVALID_HANDLE_VALUE;
  HMODULE own = NULL;
  wchar_t* room = malloc((MARK + LONGEST) * sizeof *room);
  if (room == NULL) return file;
  const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  DWORD length = GetModuleHandleExW(flags, (const void*)MAGIC, &own) ? GetModuleFileNameW(own, room + MARK, LONGEST) : 0;
  if (length > 0 && length < LONGEST) {
    wchar_t* path = room + MARK;
    if (length >= MAX_PATH && path[1] == L':') path = memcpy(room, L"\\\\?\\", MARK * sizeof *room);
    file = CreateFileW(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
  }
  free(room);
  return file;
}

/* Maps the weights in the file of the library with this function; returns 0, or raises. */
static int map_weights(Weights* weights) {
  if (tvmconv_network_weights != NULL) {
    weights->bytes = tvmconv_network_weights;
    return 0;
  }
  HANDLE file = open_own();
  if (file == INVALID_HANDLE_VALUE) return failed("RuntimeError", "the network's file is gone, and its weights with it");
  LARGE_INTEGER size;
  End end;
  const int ended = find_end(file, GetFileSizeEx(file, &size) ? (uint64_t)size.QuadPart : 0, &end);
  if (ended == 0 && end.weight_bytes > 0) {
    HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    if (mapping != NULL) {
      weights->view = MapViewOfFile(mapping, FILE_MAP_READ, (DWORD)(end.weights >> 32), (DWORD)end.weights, end.weight_bytes);
      CloseHandle(mapping);
    }
    weights->bytes = weights->view;
  }
  CloseHandle(file);
  if (ended != 0) return ended;
  return end.weight_bytes == 0 || weights->view != NULL ? 0 : no_memory();
}

static void unmap_weights(Weights* weights) {
  if (weights->view) UnmapViewOfFile(weights->view);
}

static double now(void) { return 1e-9 * (double)clock_now(); }
