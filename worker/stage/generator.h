// Text out of a model: token after token, with what attention needs of those before kept.
//
// Threads: one at a time.
#ifndef LONGHAUL_WORKER_STAGE_GENERATOR_H_
#define LONGHAUL_WORKER_STAGE_GENERATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/device_name.h"
#include "base/status.h"
#include "run/file/run_spec.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

struct GeneratorOptions {
  ModelSpec model;  // with its vocabulary; `context`: the most tokens, prompt included
  ComputeDtype dtype = ComputeDtype::kFp32;
  DeviceName device;  // a GPU: LoadTorchCuda came before (torch_cuda.h)
  uint32_t threads = 1;
};

class Generator {
 public:
  // Parameters as `read` gives them. Errors as Stage's.
  static StatusOr<std::unique_ptr<Generator>> Create(const GeneratorOptions& options,
                                                     const ReadParameter& read);
  virtual ~Generator() = default;
  // Forgets all tokens.
  virtual void Clear() = 0;
  // The logits of what follows the tokens so far and `ids`: at first a prompt, then one id.
  // kOutOfRange: more tokens than the context. Valid until the next call.
  virtual StatusOr<std::span<const float>> Next(std::span<const int32_t> ids) = 0;
};

// Which of the tokens is taken.
struct Sampling {
  double temperature = 1;  // 0: the likeliest, the first of several
  uint32_t top_k = 0;      // of so many likeliest; 0: of all
  double top_p = 1;        // of the likeliest that have this probability together
  uint64_t seed = 1;
};
// `place`: of the token in the text. The same logits, sampling and place give the same token.
uint32_t Sample(std::span<const float> logits, const Sampling& sampling, uint64_t place);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GENERATOR_H_
