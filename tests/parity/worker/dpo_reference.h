// Direct preference optimization written out: a small Llama with adapters in fp64, each answer
// computed by itself, autograd alone. It shares no code with the worker's stages.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "run/file/run_spec.h"

namespace longhaul::testing {

// The tokens of a document, and for each token whether the loss counts where it is the target.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<bool> counts;
};
struct Pair {
  Answer chosen, rejected;
};

// Values of parameters by their names, row-major.
using Values = std::map<std::string, std::vector<float>>;

struct DpoResult {
  double loss = 0;  // the mean over the pairs
  double accuracy = 0, margin = 0;
  // The gradient of each adapter.
  std::map<std::string, std::vector<double>> gradients;
};

// `model`: of family llama, with lora. `values`: all of its parameters.
DpoResult DpoByHand(const ModelSpec& model, const DpoSpec& dpo, const Values& values,
                    const std::vector<Pair>& pairs);

}  // namespace longhaul::testing
