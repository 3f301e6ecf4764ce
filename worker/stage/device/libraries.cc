#include "worker/stage/device/libraries.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

namespace longhaul::worker {

std::string LibrariesOfStages() {
  return fmt::format("LibTorch {}\n{}", TORCH_VERSION, at::show_config());
}

}  // namespace longhaul::worker
