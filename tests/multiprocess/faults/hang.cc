// Preloaded into a worker, hangs its compute thread once, inside LibTorch: when the file
// LONGHAUL_TEST_HANG appears, it is taken away, and the thread never comes back. Other threads do
// not ask LibTorch for its number of threads.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

// In place of libgomp's.
extern "C" int omp_get_max_threads() {
  using Function = int();
  static auto* const real = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, "omp_get_max_threads"));
  static const char* const path = std::getenv("LONGHAUL_TEST_HANG");
  if (path != nullptr && ::unlink(path) == 0) {
    while (true) ::pause();
  }
  return real();
}
