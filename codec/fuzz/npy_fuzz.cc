// Any bytes as a .npy file; what is read is written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/fuzz/target.h"
#include "codec/tool/npy.h"

LH_FUZZ_TARGET(codec_npy) {
  using namespace longhaul;         // NOLINT(google-build-using-namespace)
  using namespace longhaul::codec;  // NOLINT(google-build-using-namespace)
  bool taken = false;
  for (const bool bf16 : {false, true}) {
    const auto array = ParseNpy(std::as_bytes(std::span(data, size)), bf16);
    if (!array.ok()) continue;
    taken = true;
    const std::string file = FormatNpy(array->view());
    const auto again = ParseNpy(std::as_bytes(std::span(file)), bf16);
    if (!again.ok() || again->shape != array->shape) std::abort();
  }
  return taken;
}
