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

// Reads the files options.inputs. If none are given, makes three tensors from options.seed: normal
// values; Student's t with 3 degrees of freedom; normal values, 30 times as large in one channel
// of 100. kInvalidArgument: a file has no elements.
StatusOr<std::vector<Sample>> SamplesOf(const ToolOptions& options);

}  // namespace longhaul::codec
