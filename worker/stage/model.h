// The layers of one stage, whatever the model's family: what is the same in all of them, and the
// seam behind which they differ (gpt.h, llama.h).
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_MODEL_H_
#define LONGHAUL_WORKER_STAGE_MODEL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/stage/layers.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class Model {
 public:
  // What a stage of these options holds, with initial parameters. The one place that knows all
  // families.
  static std::unique_ptr<Model> Create(const StageOptions& options);
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // `input`: on the first stage ids (microbatch, context) int64, else (microbatch, context, hidden)
  // fp32. Gives the hidden state (fp32), on the last stage the logits.
  at::Tensor Forward(const at::Tensor& input) const;
  // After parameters have changed, before the next Forward.
  void RefreshCasts() const { maker_.RefreshCasts(); }
  // Mean cross-entropy, an fp32 scalar. `targets`: int64, as many as rows of `logits`.
  static at::Tensor Loss(const at::Tensor& logits, const at::Tensor& targets);

  // In the model's order.
  const std::vector<Parameter>& parameters() const { return maker_.parameters(); }

 protected:
  explicit Model(const StageOptions& options);

  // For the constructors of families.
  LayerMaker& maker() { return maker_; }
  // Of what goes into matrix products.
  at::ScalarType compute_type() const { return maker_.compute_type(); }

 private:
  virtual at::Tensor Embed(const at::Tensor& ids) const = 0;
  // `block` counts this stage's.
  virtual at::Tensor RunBlock(size_t block, const at::Tensor& x) const = 0;
  virtual at::Tensor Logits(const at::Tensor& x) const = 0;

  const bool first_, last_;
  const size_t block_count_;
  LayerMaker maker_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_MODEL_H_
