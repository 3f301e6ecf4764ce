// Defines a fuzz target. Two kinds of programs run its body. With LONGHAUL_FUZZ, each target is a
// libFuzzer program of its own (CMake function lh_fuzzer). Without, fuzz_smoke_test links the
// bodies of all targets and finds them by name.
//
//   LH_FUZZ_TARGET(codec_npy) {  // the program is codec_npy_fuzz
//     const auto array = ParseNpy(data, size);
//     if (array.ok() && !WritesAgain(*array)) std::abort();
//     return array.ok();
//   }
//
// A body gets `data` and `size`, returns whether it accepted the input, and reports a defect by
// ending the process. It must give the same result for the same bytes. Not for programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace longhaul::fuzz {

using Target = bool (*)(const uint8_t* data, size_t size);

// The fuzz targets that this program links, by name.
inline std::map<std::string, Target>& Targets() {
  static std::map<std::string, Target> targets;
  return targets;
}

}  // namespace longhaul::fuzz

#ifdef LONGHAUL_FUZZ
#define LH_FUZZ_TARGET(name)                                                \
  static bool name##_fuzz(const uint8_t* data, size_t size);                \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    name##_fuzz(data, size);                                                \
    return 0;                                                               \
  }                                                                         \
  static bool name##_fuzz(const uint8_t* data, size_t size)
#else
#define LH_FUZZ_TARGET(name)                                           \
  static bool name##_fuzz(const uint8_t* data, size_t size);           \
  [[maybe_unused]] static const bool name##_fuzz_is_registered =       \
      ::longhaul::fuzz::Targets().emplace(#name, &name##_fuzz).second; \
  static bool name##_fuzz(const uint8_t* data, size_t size)
#endif
