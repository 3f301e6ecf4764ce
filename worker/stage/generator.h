// Generates text from a whole model, token by token, with a cache of keys and values.
//
// Threads: one at a time.
#pragma once

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
  // model.vocabulary must have a value. model.context: maximum number of tokens of a text,
  // including the prompt.
  ModelSpec model;
  ComputeDtype dtype = ComputeDtype::kFp32;
  DeviceName device;  // a GPU needs LoadTorchCuda first (torch_cuda.h)
  uint32_t threads = 1;
};

// A model and the text that it extends. Errors of Create and Next: kResourceExhausted (memory) and
// kInternal (LibTorch's exception), after which Clear makes Next usable again.
class Generator {
 public:
  // Makes the model. Calls `read` for each parameter, on the calling thread, before Create returns.
  // Errors: also those of `read`.
  static StatusOr<std::unique_ptr<Generator>> Create(const GeneratorOptions& options,
                                                     const ReadParameter& read);
  virtual ~Generator() = default;
  // Begins a new text: empties the cache of keys and values.
  virtual void Clear() = 0;
  // Appends `ids` to the text and returns the logits of the token that follows, one for each id of
  // the vocabulary, in host memory, valid until the next call of Next. The first call after Create
  // or Clear gets the whole prompt; each later call must get one token. kOutOfRange: the text would
  // be longer than the context. kInvalidArgument: no ids, or an id outside the vocabulary.
  virtual StatusOr<std::span<const float>> Next(std::span<const int32_t> ids) = 0;
};

// For implementations. StageOptionsOf returns the options of a stage that holds the whole model.
// CheckNext returns the errors of Next for `ids`, behind `seen` tokens of a text.
StageOptions StageOptionsOf(const GeneratorOptions& options);
Status CheckNext(const ModelSpec& model, int64_t seen, std::span<const int32_t> ids);

// How the next token is drawn from the logits. First top_k limits the choice, then top_p.
struct Sampling {
  double temperature = 1;  // 0: always the likeliest token; at a tie the first
  uint32_t top_k = 0;      // draw from the `top_k` likeliest tokens; 0: from all
  double top_p = 1;        // draw from the likeliest tokens with this probability together; 1: all
  uint64_t seed = 1;
};
// Draws a token and returns its id. `logits`: at least one. `place`: the token's index in the text,
// which selects the random number. Equal arguments give the same token. Thread-safe.
uint32_t Sample(std::span<const float> logits, const Sampling& sampling, uint64_t place);

}  // namespace longhaul::worker
