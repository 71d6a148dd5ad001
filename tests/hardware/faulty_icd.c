/* An OpenCL driver that fails: it passes everything on to another driver, and changes
 * single functions of it. Beside this library lies FILE.conf, five lines: the library of
 * the other driver, the fault, a text, the name of its platform, that of its device.
 *
 *   good           nothing is changed
 *   build-fails    no program compiles: the build log says "unknown target CPU"
 *   build-aborts   the compiler ends the process, as the FPGA vendor's does
 *   build-hangs    the compiler never returns
 *   some-kernels   programs with the text in their source do not compile
 *   some-abort     programs with the text in their source end the process
 *   wrong-numbers  what is read back has one bit changed
 *   load-aborts    the driver ends whoever loads it
 *
 * An object of OpenCL begins with a pointer to its driver's table of functions, of which
 * the loader takes what a caller wants: patching that table changes the driver.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef void *object;
typedef int32_t status;
typedef status (*list_platforms)(uint32_t, object *, uint32_t *);

enum { /* places in the table of functions, cl_icd.h */
  GET_PLATFORM_INFO = 1,
  GET_DEVICE_INFO = 3,
  CREATE_WITH_SOURCE = 26,
  CREATE_WITH_BINARY = 27,
  BUILD = 30,
  BUILD_INFO = 33,
  READ_BUFFER = 48
};
enum { BUILD_FAILURE = -11, PLATFORM_NAME = 0x0902, DEVICE_NAME = 0x102B, LOG = 0x1183 };

static char line[5][4096]; /* library, fault, text, platform, device */
static void *saved[64];
static object chosen[4096];
static int chosen_count;
static const char *LOG_TEXT = "error: unknown target CPU 'generic'\n";

static int fault_is(const char *name) { return strcmp(line[1], name) == 0; }

static status give(const char *text, size_t size, void *value, size_t *needed) {
  if (needed) *needed = strlen(text) + 1;
  if (value && size > strlen(text)) strcpy(value, text);
  return 0;
}

static status platform_info(object p, uint32_t what, size_t size, void *value, size_t *needed) {
  status (*next)(object, uint32_t, size_t, void *, size_t *) = saved[GET_PLATFORM_INFO];
  if (what == PLATFORM_NAME && line[3][0]) return give(line[3], size, value, needed);
  return next(p, what, size, value, needed);
}

static status device_info(object d, uint32_t what, size_t size, void *value, size_t *needed) {
  status (*next)(object, uint32_t, size_t, void *, size_t *) = saved[GET_DEVICE_INFO];
  if (what == DEVICE_NAME && line[4][0]) return give(line[4], size, value, needed);
  return next(d, what, size, value, needed);
}

static int mentions(uint32_t count, const char **texts, const size_t *lengths) {
  if (!line[2][0]) return 1;
  for (uint32_t i = 0; i < count; i++) {
    size_t length = lengths && lengths[i] ? lengths[i] : strlen(texts[i]);
    if (memmem(texts[i], length, line[2], strlen(line[2]))) return 1;
  }
  return 0;
}

static object with_source(object c, uint32_t count, const char **texts, const size_t *lengths, status *error) {
  object (*next)(object, uint32_t, const char **, const size_t *, status *) = saved[CREATE_WITH_SOURCE];
  object program = next(c, count, texts, lengths, error);
  if (program && mentions(count, texts, lengths) && chosen_count < 4096) chosen[chosen_count++] = program;
  return program;
}

static object with_binary(object c, uint32_t count, const object *devices, const size_t *sizes,
                          const unsigned char **binaries, status *each, status *error) {
  (void)c, (void)count, (void)devices, (void)sizes, (void)binaries, (void)each;
  if (error) *error = -42; /* INVALID_BINARY: what fails must compile */
  return NULL;
}

static int is_chosen(object program) {
  for (int i = 0; i < chosen_count; i++)
    if (chosen[i] == program) return 1;
  return 0;
}

static status build(object p, uint32_t count, const object *devices, const char *options, void *done, void *data) {
  status (*next)(object, uint32_t, const object *, const char *, void *, void *) = saved[BUILD];
  if (!is_chosen(p)) return next(p, count, devices, options, done, data);
  if (fault_is("build-aborts") || fault_is("some-abort")) {
    fprintf(stderr, "**Internal compiler error** Cannot select: v4f32 = X86ISD::VRNDSCALE\n\nPlease report it.\n");
    abort();
  }
  while (fault_is("build-hangs")) pause();
  return BUILD_FAILURE;
}

static status build_info(object p, object d, uint32_t what, size_t size, void *value, size_t *needed) {
  status (*next)(object, object, uint32_t, size_t, void *, size_t *) = saved[BUILD_INFO];
  if (what == LOG && is_chosen(p)) return give(LOG_TEXT, size, value, needed);
  return next(p, d, what, size, value, needed);
}

static status read_buffer(object q, object b, uint32_t wait, size_t offset, size_t size, void *target,
                          uint32_t count, const object *events, object *event) {
  status (*next)(object, object, uint32_t, size_t, size_t, void *, uint32_t, const object *, object *) =
      saved[READ_BUFFER];
  status result = next(q, b, wait, offset, size, target, count, events, event);
  if (result == 0 && wait && size) ((unsigned char *)target)[size / 2] ^= 0x40;
  return result;
}

static void patch(void **table, int place, void *function) {
  uintptr_t page = (uintptr_t)&table[place] & ~(uintptr_t)4095;
  saved[place] = table[place];
  mprotect((void *)page, 8192, PROT_READ | PROT_WRITE);
  table[place] = function;
}

static void patch_all(void **table) {
  int builds = strncmp(line[1], "build-", 6) == 0 || strncmp(line[1], "some-", 5) == 0;
  patch(table, GET_PLATFORM_INFO, platform_info);
  patch(table, GET_DEVICE_INFO, device_info);
  if (builds) {
    patch(table, CREATE_WITH_SOURCE, with_source);
    patch(table, CREATE_WITH_BINARY, with_binary);
    patch(table, BUILD, build);
    patch(table, BUILD_INFO, build_info);
  }
  if (fault_is("wrong-numbers")) patch(table, READ_BUFFER, read_buffer);
}

static void *read_configuration(void) {
  Dl_info self;
  char path[4096];
  dladdr((void *)read_configuration, &self);
  snprintf(path, sizeof path, "%s.conf", self.dli_fname);
  FILE *file = fopen(path, "r");
  if (!file) return NULL;
  for (int i = 0; i < 5 && fgets(line[i], sizeof line[i], file); i++) line[i][strcspn(line[i], "\n")] = 0;
  fclose(file);
  if (fault_is("load-aborts")) {
    fprintf(stderr, "error: this CPU is not supported\n");
    abort();
  }
  return dlopen(line[0], RTLD_NOW | RTLD_LOCAL);
}

static status patched_platforms(uint32_t most, object *platforms, uint32_t *count) {
  static list_platforms next;
  static void **patched;
  if (!next) {
    void *library = read_configuration();
    void *(*find)(const char *) = library ? dlsym(library, "clGetExtensionFunctionAddress") : NULL;
    next = find ? (list_platforms)find("clIcdGetPlatformIDsKHR") : NULL;
  }
  if (!next) return -1001;
  status result = next(most, platforms, count);
  if (result == 0 && platforms && most && !patched) {
    patched = *(void ***)platforms[0];
    patch_all(patched);
  }
  return result;
}

/* what the loader looks for in a driver */
void *clGetExtensionFunctionAddress(const char *name) {
  return strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? (void *)patched_platforms : NULL;
}

status clIcdGetPlatformIDsKHR(uint32_t most, object *platforms, uint32_t *count) {
  return patched_platforms(most, platforms, count);
}

status clGetPlatformInfo(object p, uint32_t what, size_t size, void *value, size_t *needed) {
  if (saved[GET_PLATFORM_INFO]) return platform_info(p, what, size, value, needed);
  status (*own)(object, uint32_t, size_t, void *, size_t *) = (*(void ***)p)[GET_PLATFORM_INFO];
  return own(p, what, size, value, needed);
}
