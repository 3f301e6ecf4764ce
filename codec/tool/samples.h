// The tensors on which codecs are compared.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "codec/tool/commands.h"
#include "codec/tool/npy.h"

namespace longhaul::codec {

struct Sample {
  std::string name;
  NpyArray array;
};

// Reads the files options.inputs. If there are none, makes three tensors from options.seed: normal
// values; Student's t with 3 degrees of freedom; normal values with one channel in 100 that is 30
// times as large.
StatusOr<std::vector<Sample>> SamplesOf(const ToolOptions& options);

}  // namespace longhaul::codec
