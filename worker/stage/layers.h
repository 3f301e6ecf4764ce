// What the networks of all families are made of: parameters with their initial values, and the
// layers that hold them.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_LAYERS_H_
#define LONGHAUL_WORKER_STAGE_LAYERS_H_

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

// One that changes.
struct Parameter {
  std::string name;     // global
  at::Tensor value;     // fp32 leaf that requires a gradient
  bool decays = false;  // by the optimizer's weight decay
  // Of a block's matrix: so many lie one below another in the rows. 0: no matrix, or of no block.
  uint32_t block_matrices = 0;
  bool tied = false;  // as in run/model/parameter.h
  // Another stage or rank has the same numbers, and counts them: in the norm of gradients.
  bool counted_elsewhere = false;
  // In a group, where ranks that have the same rows each have a part of their gradient: which of
  // the whole parameter's rows these are.
  struct Summed {
    int64_t whole_rows = 0, first_row = 0;
  };
  std::optional<Summed> summed;
  bool balances = false;  // as in run/model/parameter.h
};

// What LoRA adds to a Linear: scale * b (a x). Both undefined where it adds nothing.
struct Adapter {
  at::Tensor a, b;            // (rank, inputs), (outputs, rank)
  at::Tensor cast_a, cast_b;  // as Linear's
  double scale = 0;
};

// A matrix product in the type that the stage computes in, whatever type `x` has. Its backward adds
// what it finds to the gradients of its parameters, which are fp32, itself; on a GPU as part of the
// product, without rounding that to bf16 first. Frozen ones have no gradient. Outlives what it has
// computed.
struct Linear {
  at::Tensor weight, bias;  // (outputs, inputs); bias undefined where there is none
  // What is multiplied: copies in bf16 (LayerMaker::RefreshCasts), or the parameters themselves. Of
  // a sum over ranks only rank 0 adds the bias, but all have its gradient.
  at::Tensor cast_weight, cast_bias;
  // The bias is that of this output and the following ones, and so its gradient: of a sum over
  // ranks that have channels of their own, to which each adds its bias itself.
  int64_t first_biased = 0;
  Adapter adapter;
  // In a group, of a matrix whose outputs ranks share: its own gradient is deferred, to be computed
  // while that of the input is summed.
  Overlap* overlap = nullptr;
  at::Tensor operator()(const at::Tensor& x) const;
};

// The product that gives logits, in fp32, which the loss needs; otherwise as a Linear without bias.
// In a group those of this rank's share of the vocabulary.
struct Head {
  at::Tensor weight;  // (vocabulary, channels)
  // As Linear's. In bf16 on a GPU rows of zeros follow, up to a multiple of 8: with GPT-2's 50,257
  // rows of its own the head's products would take five times as long.
  at::Tensor cast_weight;
  int64_t first_row = 0;  // of this rank's share
  const RankGroup* group = nullptr;
  at::Tensor operator()(const at::Tensor& x) const;
};

// The product that gives a router's scores, in fp32 whatever the type of `x`, which it keeps as it
// is; otherwise as a Linear without bias. (rows, channels) to (rows, outputs).
struct Scorer {
  at::Tensor weight;  // (outputs, channels)
  at::Tensor operator()(const at::Tensor& x) const;
};

// Rows of a table, in fp32. Its backward adds to the table's gradient by itself, as Linear's does:
// on a GPU to the rows that were read alone, always in the same order. Outlives what it has given.
// In a group a rank has a share of the rows, and all get every row from the rank that has it.
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

// Over the root of the mean square; computed in the type of `x`, which the residual stream keeps in
// fp32. Without a weight there is no norm.
struct RmsNorm {
  at::Tensor weight;
  double epsilon = 0;
  at::Tensor operator()(const at::Tensor& x) const;
};

// What parameters begin with.
struct FirstValues {
  enum class Kind : uint8_t {
    kSeeded,  // numbers that depend on (seed, name) alone, whatever the device
    kAny,     // LibTorch's own normal numbers, other ones each time
    kZeros,   // others come (Load)
  } kind = Kind::kSeeded;
  uint64_t seed = 0;
};

// Makes layers over the parameters of a descriptor (run/model/family.h), which has their shapes and
// first values. Layers are made in the descriptor's order; another order is a bug of the family's
// code, and ends the process.
class LayerMaker {
 public:
  // `compute_type`: of matrix products, kFloat or kBFloat16. `adapter_scale`: of all adapters.
  // `group`: layers get this rank's shares of the parameters of `spec`; null: whole ones.
  LayerMaker(const ModelSpec& spec, std::vector<model::PlacedParameter> wanted,
             const FirstValues& first_values, const at::Device& device, at::ScalarType compute_type,
             double adapter_scale, const RankGroup* group);

  // Rows that are added, not looked up: positions.
  at::Tensor MakeRows(const std::string& name) { return Make(name, Use::kInFp32); }
  Embedding MakeEmbedding(const std::string& name);
  // Without a weight where other ranks have it: of an expert.
  // "<name>.weight" and, where the descriptor has them, "<name>.bias" and "<name>.lora_A.weight"
  // with its B.
  Linear MakeLinear(const std::string& name);
  // What is multiplied of these, which have one shape, one behind the other in memory: (matrices,
  // outputs, inputs). Undefined where no product over all of them can read it.
  at::Tensor Stack(std::vector<Linear>& linears);
  // "<name>.weight".
  // Over its own weight, where the descriptor has that; else over the matrix of the embedding, as
  // the model is tied: of `embedding`, or where another stage has that, one more of the same name.
  Head MakeHead(const std::string& name, const std::string& embedding_name,
                const Embedding& embedding);
  // What is added to a router's scores.
  at::Tensor MakeBalance(const std::string& name) { return Make(name, Use::kInFp32); }
  Scorer MakeScorer(const std::string& name) { return {Make(name + ".weight", Use::kInFp32)}; }
  LayerNorm MakeLayerNorm(const std::string& name, double epsilon);
  RmsNorm MakeRmsNorm(const std::string& name, double epsilon);
  // All parameters of the descriptor are made.
  bool done() const { return made_.size() == wanted_.size(); }
  size_t made() const { return made_.size(); }

  // The parameters that a step changes: trained ones and biases that balance experts.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Bytes of those that are frozen.
  uint64_t frozen_bytes() const;
  at::ScalarType compute_type() const { return compute_type_; }
  // Gives parameters that are published the values that `read` has for them, one after the other;
  // in a group it has this rank's shares.
  Status Load(const ReadParameter& read) const;
  // After parameters have changed: what products use of them is in the type of products again.
  void RefreshCasts() const;

 private:
  // Rows that are looked up are fp32; where the embedding is tied a product uses them besides.
  enum class Use : uint8_t { kInProduct, kInFp32, kLookedUp };
  Head HeadOver(const at::Tensor& weight, int64_t first_row);
  // The sizes of this rank's part of parameter `index`.
  std::vector<int64_t> SizesOf(size_t index) const;
  // Where that begins, of a table's rows.
  int64_t FirstRow(size_t index) const;
  std::optional<Parameter::Summed> SummedInGroup(size_t index) const;
  // Of first values: so that channels that are not summed vary as much as those that are.
  void ScaleOwnChannels(at::Tensor* outputs) const;
  // Another rank counts it.
  bool IsCountedByOther(size_t index) const;
  // The next parameter of the descriptor, which must be called `name` and have this use.
  at::Tensor Make(const std::string& name, Use use);
  bool NextIs(const std::string& name) const;
  // The first value of this rank's part of parameter `index`.
  at::Tensor FirstValue(size_t index) const;
  // A frozen parameter's, in the type in which it is held.
  at::Tensor FrozenValue(size_t index) const;
  // What products use: in fp32 the parameter's memory; in bf16 a copy, followed by zeros up to
  // `rows` rows in all, at least the parameter's. A frozen one's memory is that already.
  at::Tensor Cast(const at::Tensor& parameter, int64_t rows);
  at::Tensor Cast(const at::Tensor& parameter) { return Cast(parameter, parameter.size(0)); }
  // Of the head's matrix as products use it, which has so many of its own.
  int64_t RowsInHead(int64_t rows) const;
  const std::vector<model::PlacedParameter> wanted_;
  const FirstValues first_values_;
  const at::Device device_;
  const at::ScalarType compute_type_;
  const double adapter_scale_;
  const RankGroup* const group_;
  std::vector<model::Share> shares_;  // of a group, as `wanted_`
  std::vector<at::Tensor> made_;      // as `wanted_`
  std::vector<Parameter> parameters_;
  std::vector<at::Tensor> cast_, casts_;  // parameters that products use, and their copies
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_LAYERS_H_
