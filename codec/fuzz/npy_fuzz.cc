// Any bytes as a .npy file; what is read is written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "codec/tool/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul;         // NOLINT(google-build-using-namespace)
  using namespace longhaul::codec;  // NOLINT(google-build-using-namespace)
  for (const bool bf16 : {false, true}) {
    const auto array = ParseNpy(std::as_bytes(std::span(data, size)), bf16);
    if (!array.ok()) continue;
    const std::string file = FormatNpy(array->view());
    const auto again = ParseNpy(std::as_bytes(std::span(file)), bf16);
    if (!again.ok() || again->shape != array->shape) std::abort();
  }
  return 0;
}
