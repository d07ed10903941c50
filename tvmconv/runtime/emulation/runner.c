/* Calls functions of a kernel's library, in a program for an emulator:
 *
 *   runner LIBRARY CALLS
 *
 * CALLS is a text file. A call is the function's name and its number of arrays; an array is code and bits of its type (DLPack's), the
 * number of its axes, their extents, and the file of its elements. The function writes the last array. A guard page follows each
 * array, so that any access beyond its end ends this program. tvm-ffi's functions that kernels use are defined here. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tvm/ffi/c_api.h>
#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#define MOST_ARRAYS 8
#define MOST_AXES 16

static char raised[512];
static int error_object;

void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  snprintf(raised, sizeof raised, "%s: %s", kind, message);
}

void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count) {
  int length = snprintf(raised, sizeof raised, "%s: ", kind);
  for (int32_t part = 0; part < count && length < (int)sizeof raised; part++)
    length += snprintf(raised + length, sizeof raised - length, "%s", parts[part] ? parts[part] : "");
}

void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle* result) { *result = &error_object; }
void TVMFFIErrorSetRaised(TVMFFIObjectHandle error) { (void)error; }
int TVMFFIObjectDecRef(TVMFFIObjectHandle object) { return 0 * (object != NULL); }

/* The only registered function, which returns the pool of threads that libraries of this process share. */
static struct {
  void* self;
  TVMFFISafeCallType call;
} created;
static TVMFFIObjectHandle registered;

int TVMFFIFunctionCreate(void* self, TVMFFISafeCallType call, void (*deleter)(void* self), TVMFFIObjectHandle* out) {
  (void)deleter;
  created.self = self, created.call = call;
  *out = &created;
  return 0;
}

int TVMFFIFunctionSetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle function, int replace) {
  (void)name, (void)replace;
  registered = function;
  return 0;
}

int TVMFFIFunctionGetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle* out) {
  (void)name;
  *out = registered;
  return 0;
}

int TVMFFIFunctionCall(TVMFFIObjectHandle function, TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)function;
  return created.call(created.self, args, count, result);
}

static void fail(const char* what, const char* which) {
  fprintf(stderr, "%s %s\n", what, which);
  exit(1);
}

#ifdef _WIN32
/* Returns whole pages before a guard page; NULL: there is no memory. */
static char* new_pages(size_t bytes, size_t page) {
  DWORD before;
  char* memory = VirtualAlloc(NULL, bytes + page, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  return memory != NULL && VirtualProtect(memory + bytes, page, PAGE_NOACCESS, &before) ? memory : NULL;
}
static size_t page_bytes(void) { return 4096; }
static void* load(const char* path) {
  void* library = LoadLibraryA(path);
  if (library == NULL) fprintf(stderr, "error %lu\n", GetLastError());
  return library;
}
static void* find(void* library, const char* symbol) { return (void*)GetProcAddress(library, symbol); }
static void leave(void) { TerminateProcess(GetCurrentProcess(), 0); }
#else
static char* new_pages(size_t bytes, size_t page) {
  char* memory = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory != MAP_FAILED && mprotect(memory + bytes, page, PROT_NONE) == 0 ? memory : NULL;
}
static size_t page_bytes(void) { return sysconf(_SC_PAGESIZE); }
static void* load(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  return library;
}
static void* find(void* library, const char* symbol) { return dlsym(library, symbol); }
static void leave(void) { _exit(0); }
#endif

/* The elements of a file. */
typedef struct {
  void* place;
  size_t bytes;
} Elements;

static void move(const char* path, Elements elements, int write_them) {
  FILE* file = fopen(path, write_them ? "r+b" : "rb");
  if (file == NULL) fail("cannot open", path);
  size_t moved = write_them ? fwrite(elements.place, 1, elements.bytes, file) : fread(elements.place, 1, elements.bytes, file);
  if (fclose(file) != 0 || moved != elements.bytes) fail("cannot read or write", path);
}

static Elements read_elements(const char* path) {
  struct stat status;
  if (stat(path, &status) != 0) fail("cannot find", path);
  Elements elements = {NULL, status.st_size};
  if (elements.bytes == 0) return elements;
  const size_t page = page_bytes(), pages = (elements.bytes + page - 1) / page * page;
  char* memory = new_pages(pages, page);
  if (memory == NULL) fail("no memory for", path);
  elements.place = memory + pages - elements.bytes;
  move(path, elements, 0);
  return elements;
}

static void call(void* library, FILE* calls, const char* name, int count) {
  DLTensor arrays[MOST_ARRAYS];
  int64_t shapes[MOST_ARRAYS][MOST_AXES];
  TVMFFIAny args[MOST_ARRAYS], result = {0};
  char symbol[256], path[4096];
  Elements elements = {NULL, 0};
  if (count < 1 || count > MOST_ARRAYS) fail("too many arrays for", name);
  memset(args, 0, sizeof args);
  for (int number = 0; number < count; number++) {
    int code, bits, axes;
    if (fscanf(calls, "%d %d %d", &code, &bits, &axes) != 3 || axes < 0 || axes > MOST_AXES) fail("bad array of", name);
    for (int axis = 0; axis < axes; axis++)
      if (fscanf(calls, "%" SCNd64, &shapes[number][axis]) != 1) fail("bad shape of", name);
    if (fscanf(calls, " %4095s", path) != 1) fail("no file for", name);
    elements = read_elements(path);
    arrays[number] = (DLTensor){elements.place, {kDLCPU, 0}, axes, {code, bits, 1}, shapes[number], NULL, 0};
    int64_t* strides = calloc(axes + 1, sizeof *strides); /* row-major; freed at exit */
    for (int64_t axis = axes - 1, step = 1; axis >= 0; step *= shapes[number][axis--]) strides[axis] = step;
    arrays[number].strides = strides;
    args[number].type_index = kTVMFFIDLTensorPtr;
    args[number].v_ptr = &arrays[number];
  }
  snprintf(symbol, sizeof symbol, "__tvm_ffi_%s", name);
  TVMFFISafeCallType function = (TVMFFISafeCallType)find(library, symbol);
  if (function == NULL) fail("the library has no", symbol);
  if (function(NULL, args, count, &result) != 0) fail(name, raised);
  if (elements.bytes > 0) move(path, elements, 1);
}

int main(int count, char** words) {
  if (count != 3) fail("usage:", "runner LIBRARY CALLS");
  void* library = load(words[1]);
  if (library == NULL) fail("cannot load", words[1]);
  FILE* calls = fopen(words[2], "r");
  if (calls == NULL) fail("cannot open", words[2]);
  char name[200];
  int arrays;
  while (fscanf(calls, " %199s %d", name, &arrays) == 2) call(library, calls, name, arrays);
  fflush(stdout);
  leave(); /* without destructors: the library's threads still wait for a loop */
  return 0;
}
