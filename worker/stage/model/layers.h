// Parameters with their initial values, and the layers that the models of all families (gpt.h,
// llama.h) are made of.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/model/family.h"
#include "run/model/share.h"
#include "worker/stage/group/rank_group.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// A trainable parameter.
struct Parameter {
  std::string name;     // global name
  at::Tensor value;     // fp32 leaf that requires a gradient
  bool decays = false;  // weight decay applies
  // For a matrix of a block: how many matrices are stacked in its rows (3 for fused q, k, v). 0 for
  // all other parameters.
  uint32_t block_matrices = 0;
  bool tied = false;  // as in run/model/parameter.h
  // Another stage or rank holds the same numbers, and counts them in the gradient norm.
  bool counted_elsewhere = false;
  // Set in a group if ranks hold the same rows and each has a partial sum of their gradient: the
  // rows' position in the whole parameter.
  struct Summed {
    int64_t whole_rows = 0, first_row = 0;
  };
  std::optional<Summed> summed;
  bool balances = false;  // as in run/model/parameter.h
};

// LoRA's addition to a Linear: scale * b (a x). Both matrices are undefined without LoRA.
struct Adapter {
  at::Tensor a, b;            // (rank, inputs), (outputs, rank)
  at::Tensor cast_a, cast_b;  // as Linear's casts
  double scale = 0;
};

// A matrix product, computed in the stage's compute type whatever the type of `x`. Backward adds to
// the fp32 gradients of the parameters itself; on a GPU within the product, without rounding to
// bf16 first. Frozen parameters get no gradient. Must outlive every tensor that it computed.
struct Linear {
  at::Tensor weight, bias;  // (outputs, inputs); bias undefined if there is none
  // Operands of the product: bf16 copies (LayerMaker::RefreshCasts), or the parameters themselves.
  // When the product is a partial sum over ranks, only rank 0 adds the bias, but all ranks have its
  // gradient.
  at::Tensor cast_weight, cast_bias;
  // The first output that has a bias. Not 0 in a partial group: each rank adds the bias of its own
  // channels, which are not summed over ranks.
  int64_t first_biased = 0;
  Adapter adapter;
  // Set in a group for a matrix whose outputs ranks share: the weight gradient is deferred, and
  // runs while the gradient of the input is summed over ranks.
  Overlap* overlap = nullptr;
  at::Tensor operator()(const at::Tensor& x) const;
};

// The product that makes logits, in fp32 as the loss needs; otherwise like a Linear without bias.
// In a group it makes the logits of this rank's share of the vocabulary.
struct Head {
  at::Tensor weight;  // (vocabulary, channels)
  // As Linear's. In bf16 on a GPU it is padded with rows of zeros to a multiple of 8: with GPT-2's
  // 50,257 rows the products would take five times as long.
  at::Tensor cast_weight;
  int64_t first_row = 0;  // first row of this rank's share
  const RankGroup* group = nullptr;
  at::Tensor operator()(const at::Tensor& x) const;
};

// The product that makes a router's scores: (rows, channels) to (rows, outputs), in fp32. Saves `x`
// for backward in the type of `x`; otherwise like a Linear without bias.
struct Scorer {
  at::Tensor weight;  // (outputs, channels)
  at::Tensor operator()(const at::Tensor& x) const;
};

// Looks up rows of a table, in fp32. Backward adds to the table's gradient itself; on a GPU only to
// the rows that were read, in a deterministic order. Must outlive every tensor that it returned. In
// a group each rank holds a share of the rows, and all ranks get every row.
struct Embedding {
  at::Tensor weight;  // (rows, channels)
  int64_t first_row = 0;
  const RankGroup* group = nullptr;
  at::Tensor operator()(const at::Tensor& ids) const;
};

struct LayerNorm {
  at::Tensor weight, bias;
  double epsilon = 0;
  at::Tensor operator()(const at::Tensor& x) const;
};

// Divides by the root mean square. Computed in the type of `x`, which is fp32 in the residual
// stream. An undefined weight means that the model has no such norm.
struct RmsNorm {
  at::Tensor weight;
  double epsilon = 0;
  at::Tensor operator()(const at::Tensor& x) const;
};

// The source of parameters' first values.
struct FirstValues {
  enum class Kind : uint8_t {
    kSeeded,  // depend only on (seed, name), whatever the device
    kAny,     // LibTorch's own normal numbers, different each time
    kZeros,   // zeros, until Load sets others
  } kind = Kind::kSeeded;
  uint64_t seed = 0;
};

// Makes layers over the parameters of a family's descriptor (run/model/family.h), which gives
// shapes and first values. Layers must be made in the descriptor's order. Another order is a bug of
// the family's code, and ends the process.
class LayerMaker {
 public:
  // `compute_type`: type of matrix products, kFloat or kBFloat16. `adapter_scale`: the scale of all
  // LoRA adapters. `group`: each parameter is this rank's share; null: whole parameters.
  LayerMaker(const ModelSpec& spec, std::vector<model::PlacedParameter> wanted,
             const FirstValues& first_values, const at::Device& device, at::ScalarType compute_type,
             double adapter_scale, const RankGroup* group);

  // A table whose rows are added without a lookup, as positions are.
  at::Tensor MakeRows(const std::string& name) { return Make(name, Use::kInFp32); }
  Embedding MakeEmbedding(const std::string& name);
  // Uses "<name>.weight" and, if the descriptor has them, "<name>.bias", "<name>.lora_A.weight" and
  // its B. The weight is undefined for an expert that another rank holds.
  Linear MakeLinear(const std::string& name);
  // Returns the operands of `linears`, all of one shape, as one tensor (matrices, outputs, inputs),
  // contiguous in memory. Undefined if no grouped product can read them.
  at::Tensor Stack(std::vector<Linear>& linears);
  // Uses "<name>.weight" if the descriptor has it. Else the model is tied and the head uses the
  // embedding's matrix: the matrix of `embedding`, or a copy of the same name if another stage
  // holds the embedding.
  Head MakeHead(const std::string& name, const std::string& embedding_name,
                const Embedding& embedding);
  // The biases that are added to a router's scores.
  at::Tensor MakeBalance(const std::string& name) { return Make(name, Use::kInFp32); }
  Scorer MakeScorer(const std::string& name) { return {Make(name + ".weight", Use::kInFp32)}; }
  LayerNorm MakeLayerNorm(const std::string& name, double epsilon);
  RmsNorm MakeRmsNorm(const std::string& name, double epsilon);
  // Whether all parameters of the descriptor are made.
  bool done() const { return made_.size() == wanted_.size(); }
  size_t made() const { return made_.size(); }

  // The parameters that a step changes: trained ones, and the biases that balance experts.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Bytes of the frozen parameters.
  uint64_t frozen_bytes() const;
  at::ScalarType compute_type() const { return compute_type_; }
  // Sets all published parameters to values from `read`, one parameter at a time. In a group `read`
  // returns this rank's shares.
  Status Load(const ReadParameter& read) const;
  // Refreshes the copies that products use. Call it after parameters have changed.
  void RefreshCasts() const;

 private:
  // How a parameter is used. A tied embedding is looked up and used in a product.
  enum class Use : uint8_t { kInProduct, kInFp32, kLookedUp };
  Head HeadOver(const at::Tensor& weight, int64_t first_row);
  // The shape of this rank's part of parameter `index`.
  std::vector<int64_t> SizesOf(size_t index) const;
  // The first row of this rank's part of a table.
  int64_t FirstRow(size_t index) const;
  std::optional<Parameter::Summed> SummedInGroup(size_t index) const;
  // Scales initial values so that a rank's own channels, which are not summed over ranks, vary as
  // much as the shared ones.
  void ScaleOwnChannels(at::Tensor* outputs) const;
  // Whether another rank counts parameter `index` in the gradient norm.
  bool IsCountedByOther(size_t index) const;
  // Makes the next parameter of the descriptor, which must have this name and use.
  at::Tensor Make(const std::string& name, Use use);
  bool NextIs(const std::string& name) const;
  // The first values of this rank's part of parameter `index`.
  at::Tensor FirstValue(size_t index) const;
  // First values of a frozen parameter, in the type in which it is stored.
  at::Tensor FrozenValue(size_t index) const;
  // Returns the operand for products: the parameter's own memory in fp32; a copy in bf16, padded
  // with zeros to `rows` rows. A frozen parameter is already stored in that form.
  at::Tensor Cast(const at::Tensor& parameter, int64_t rows);
  at::Tensor Cast(const at::Tensor& parameter) { return Cast(parameter, parameter.size(0)); }
  // Rows of the head's operand, padding included, for a matrix of `rows` rows.
  int64_t RowsInHead(int64_t rows) const;
  const std::vector<model::PlacedParameter> wanted_;
  const FirstValues first_values_;
  const at::Device device_;
  const at::ScalarType compute_type_;
  const double adapter_scale_;
  const RankGroup* const group_;
  std::vector<model::Share> shares_;  // in a group; same order as `wanted_`
  std::vector<at::Tensor> made_;      // same order as `wanted_`
  std::vector<Parameter> parameters_;
  std::vector<at::Tensor> cast_, casts_;  // parameters that products use, and their copies
};

}  // namespace longhaul::worker
