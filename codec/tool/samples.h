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

// Reads the files options.inputs. If there are none, makes three tensors of 1 x 256 x 1024 from
// options.seed: normal values; values of Student's t with 3 degrees of freedom; normal values in
// which one channel of 100 is 30 times as large.
StatusOr<std::vector<Sample>> SamplesOf(const ToolOptions& options);

}  // namespace longhaul::codec
