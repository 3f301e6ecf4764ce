// Parameters with their initial values, and the layers of which the models of all families (gpt.h,
// llama.h) are made.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/model/family.h"
#include "run/model/share.h"
#include "worker/stage/group/matrix_parts.h"
#include "worker/stage/group/rank_group.h"
#include "worker/stage/model/adapter_switch.h"
#include "worker/stage/model/dropout.h"
#include "worker/stage/model/quantized.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// A parameter that training changes.
struct Parameter {
  std::string name;     // its name in the whole model
  at::Tensor value;     // fp32 leaf that requires a gradient
  bool decays = false;  // weight decay applies
  // For a matrix of a block: number of matrices that are stacked in its rows (3 for fused q, k, v).
  // 0 for other parameters.
  uint32_t block_matrices = 0;
  // For a matrix of a block in a group, if ranks hold different parts of it: how they divide it.
  // Null: this rank holds all of it.
  std::shared_ptr<const MatrixParts> parts = nullptr;
  bool tied = false;  // it is embedding and head of a tied model (run/model/parameter.h)
  // True: another stage or rank holds the same numbers, and counts them in the gradient norm.
  bool counted_elsewhere = false;
  // Set in a group if several ranks hold the same rows, and each has only a part of their gradient,
  // to be summed over ranks. Tells where the rows are in the whole parameter.
  struct Summed {
    int64_t whole_rows = 0, first_row = 0;
  };
  std::optional<Summed> summed;
  bool balances = false;  // a bias that balances experts; it has no gradient (moe.h)
};

// LoRA's addition to a Linear: scale * b (a dropout(x)). Without LoRA, `a` and `b` are undefined.
//
// In a group `a` or `b` is split as the matrix is, and the other one is whole on each rank. Where
// outputs are divided, each rank computes a x of the whole x. Where inputs are divided, a x of a
// rank is a part of a sum; so is b (a x), and it is summed together with the product itself. In
// both cases each rank has a part of the gradient of the whole one (Parameter::summed).
struct Adapter {
  at::Tensor a, b;            // (rank, inputs), (outputs, rank)
  at::Tensor cast_a, cast_b;  // as Linear::cast_weight
  double scale = 0;
  const Dropout* dropout = nullptr;      // null: none
  const AdapterSwitch* state = nullptr;  // whether adapters are on; null: they are
  at::Tensor channels;                   // Dropout::ChannelsOf the inputs
};

// A matrix product: (..., inputs) to (..., outputs), computed in the stage's compute type whatever
// the type of `x`. Backward adds the gradients of the parameters directly to their fp32 grad(). On
// a GPU the product kernel does this addition, so no gradient is rounded to bf16 first. Frozen
// parameters get no gradient. A Linear must outlive each tensor that it computed.
struct Linear {
  // (outputs, inputs); of a quantized matrix the stored bytes. bias undefined if there is none.
  at::Tensor weight, bias;
  // Null: the matrix is not quantized. Else cast_weight is undefined.
  std::shared_ptr<const QuantizedMatrix> quantized = nullptr;
  // The operands of the product: copies in bf16 (LayerMaker::RefreshCasts), or the parameters
  // themselves. If each rank computes a part of a sum, only rank 0 adds the bias, but all ranks
  // compute its gradient.
  at::Tensor cast_weight, cast_bias;
  // The first output to which the bias is added. It is not 0 on most ranks of a partial group:
  // there a rank adds the bias only to its own channels, which are not summed over ranks.
  int64_t first_biased = 0;
  Adapter adapter;
  // Set in a group if the outputs are divided over ranks; the RankGroup owns it. Then the weight
  // gradient is computed later, while the gradient of the input is summed over ranks.
  Overlap* overlap = nullptr;
  at::Tensor operator()(const at::Tensor& x) const;
  // The matrix (outputs, inputs) for a product: cast_weight, or the dequantized matrix. The result
  // is valid until another Linear of the stage is asked; do not keep it for backward.
  at::Tensor Operand() const { return quantized ? quantized->Dequantize() : cast_weight; }
  // The type of the operands.
  at::ScalarType type() const { return quantized ? quantized->type() : cast_weight.scalar_type(); }
};

// The product that makes the logits. Logits are fp32, as the loss needs; otherwise a Head works as
// a Linear without bias. In a group it makes the logits of this rank's share of the vocabulary.
struct Head {
  at::Tensor weight;  // (vocabulary, channels)
  // As in Linear. In bf16 on a GPU, rows of zeros at its end make the number of rows a multiple of
  // 8: with GPT-2's 50,257 rows the products would take five times as long.
  at::Tensor cast_weight;
  int64_t first_row = 0;  // vocabulary entry of this rank's first row
  const RankGroup* group = nullptr;
  at::Tensor operator()(const at::Tensor& x) const;
};

// The product that makes the scores of a router: (rows, channels) to (rows, outputs), computed in
// fp32. Keeps `x` for backward without conversion. Otherwise a Scorer is as a Linear without bias.
struct Scorer {
  at::Tensor weight;  // (outputs, channels)
  at::Tensor operator()(const at::Tensor& x) const;
};

// Looks up rows of a table: ids (...) int64 to (..., channels) fp32. Backward adds directly to the
// table's grad(); on a GPU only to the rows that were read, in a deterministic order. An Embedding
// must outlive each tensor that it returned. In a group each rank holds a share of the table's
// rows, and all ranks get all rows that are looked up.
struct Embedding {
  at::Tensor weight;      // (rows, channels)
  int64_t first_row = 0;  // table row of this rank's first row
  const RankGroup* group = nullptr;
  at::Tensor operator()(const at::Tensor& ids) const;
};

struct LayerNorm {
  at::Tensor weight, bias;
  double epsilon = 0;
  at::Tensor operator()(const at::Tensor& x) const;
};

// Divides by the root mean square of the channels, and multiplies by Factor(). Computed in the type
// of `x`, which is fp32 in the residual stream. If `weight` is undefined, the model has no such
// norm, and `x` is returned.
struct RmsNorm {
  at::Tensor weight;
  double epsilon = 0;
  bool from_one = false;
  // The weight; `from_one`: 1 + weight.
  at::Tensor Factor() const;
  at::Tensor operator()(const at::Tensor& x) const;
};

// How parameters get their first values.
struct FirstValues {
  enum class Kind : uint8_t {
    kSeeded,  // by init.h: they depend only on the seed and the parameter's name
    kAny,     // LibTorch's normal numbers, different each time
    kZeros,   // zeros, until Load sets others; adapters by init.h
  } kind = Kind::kSeeded;
  uint64_t seed = 0;
  bool loads_adapters = false;  // kZeros: adapters are zeros, too, until Load sets them
};

// Makes layers and their parameters. A model family has a descriptor (run/model/family.h), which
// lists the parameters with shapes and first values. Layers must be made in the order of this list.
// Another order is a bug in the family's code, and ends the process.
class LayerMaker {
 public:
  // `wanted`: the descriptor's list. `compute_type`: the type of matrix products, kFloat or
  // kBFloat16. `adapter_scale`: the scale of all LoRA adapters. `group`: if not null, parameters
  // are this rank's shares.
  LayerMaker(const ModelSpec& spec, std::vector<model::PlacedParameter> wanted,
             const FirstValues& first_values, const at::Device& device, at::ScalarType compute_type,
             double adapter_scale, const RankGroup* group);

  // Makes a table whose rows are added without a lookup, as for positions.
  at::Tensor MakeRows(const std::string& name) { return Make(name, Use::kInFp32); }
  Embedding MakeEmbedding(const std::string& name);
  // Uses the parameters "<name>.weight" and, if the descriptor has them, "<name>.bias",
  // "<name>.lora_A.weight" and "<name>.lora_B.weight". The weight is undefined for an expert that
  // is on another rank.
  Linear MakeLinear(const std::string& name);
  // Moves the operands of `linears`, which must have one shape, into one contiguous tensor
  // (matrices, outputs, inputs) and returns it. If no grouped product can use them, returns an
  // undefined tensor and moves nothing: on a CPU, in fp32, and for frozen matrices, whose products
  // have adapters and may be quantized.
  at::Tensor Stack(std::vector<Linear>& linears);
  // Uses "<name>.weight" if the descriptor has it. Else the model is tied, and the head uses the
  // matrix of `embedding`. If another stage has the embedding, the head gets a copy of its matrix,
  // with the name `embedding_name`.
  Head MakeHead(const std::string& name, const std::string& embedding_name,
                const Embedding& embedding);
  // Makes the biases that are added to a router's scores to balance experts.
  at::Tensor MakeBalance(const std::string& name) { return Make(name, Use::kInFp32); }
  Scorer MakeScorer(const std::string& name) { return {Make(name + ".weight", Use::kInFp32)}; }
  LayerNorm MakeLayerNorm(const std::string& name, double epsilon);
  RmsNorm MakeRmsNorm(const std::string& name, double epsilon, bool from_one);
  // Returns true if all parameters of the descriptor have been made.
  bool done() const { return made_.size() == wanted_.size(); }
  size_t made() const { return made_.size(); }

  // The parameters that training changes, including the biases that balance experts.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Bytes of the frozen parameters, and of the memory into which they are dequantized.
  uint64_t frozen_bytes() const;
  at::ScalarType compute_type() const { return compute_type_; }
  // The dropout of all adapters; null: they have none.
  Dropout* dropout() const { return dropout_.get(); }
  // The switch of all adapters, also of a model without any.
  AdapterSwitch* adapters() const { return adapters_.get(); }
  // Sets all parameters that published models have, and with FirstValues::loads_adapters the
  // adapters, to values from `read`, one parameter at a time.
  // In a group `read` must give this rank's shares; for a parameter that this rank does not hold,
  // `read` is called with no values. Quantizes what is stored quantized. Returns the first error of
  // `read`; kInvalidArgument: a parameter cannot be quantized.
  Status Load(const ReadParameter& read) const;
  // Updates the bf16 copies that products use. Call it after parameters have changed.
  void RefreshCasts() const;

 private:
  // How a layer uses a parameter. kLookedUp: a tied embedding may be used in a product too.
  enum class Use : uint8_t { kInProduct, kInFp32, kLookedUp };
  Head HeadOver(const at::Tensor& weight, int64_t first_row);
  // The shape of this rank's part of parameter `index`.
  std::vector<int64_t> SizesOf(size_t index) const;
  // Returns true if this rank holds a part of parameter `index`, or all.
  bool IsHere(size_t index) const;
  // The first row that this rank holds of a table.
  int64_t FirstRow(size_t index) const;
  std::optional<Parameter::Summed> SummedInGroup(size_t index) const;
  // In a partial group, scales the initial values for a rank's own channels, so that these channels
  // vary as much as the shared ones, although they are not summed over ranks.
  void ScaleOwnChannels(at::Tensor* outputs) const;
  // Returns true if another rank counts parameter `index` in the gradient norm.
  bool IsCountedByOther(size_t index) const;
  // Makes the descriptor's next parameter, which must have this name and use.
  at::Tensor Make(const std::string& name, Use use);
  bool NextIs(const std::string& name) const;
  // Makes what the adapters of a product draw for dropout. `matrix`, `a`: indices of parameters.
  at::Tensor DropoutChannels(size_t matrix, size_t a) const;
  // Returns the first values of this rank's part of parameter `index`.
  at::Tensor FirstValue(size_t index) const;
  // Returns the first values of a frozen parameter, in the type in which it is stored.
  at::Tensor FrozenValue(size_t index) const;
  // Makes a quantized parameter with its first values.
  std::shared_ptr<QuantizedMatrix> MakeQuantized(size_t index) const;
  // Null: no parameter is quantized.
  std::unique_ptr<DequantizedMemory> MakeDequantizedMemory() const;
  // Returns the operand for products: in fp32 the parameter itself; in bf16 a copy, with rows of
  // zeros at its end to make `rows` rows. A frozen parameter is already stored so.
  at::Tensor Cast(const at::Tensor& parameter, int64_t rows);
  at::Tensor Cast(const at::Tensor& parameter) { return Cast(parameter, parameter.size(0)); }
  // Number of rows of the head's operand, with the rows of zeros, for a matrix of `rows` rows.
  int64_t RowsInHead(int64_t rows) const;
  const std::vector<model::PlacedParameter> wanted_;
  const FirstValues first_values_;
  const at::Device device_;
  const at::ScalarType compute_type_;
  const double adapter_scale_;
  const std::unique_ptr<Dropout> dropout_;
  const std::unique_ptr<AdapterSwitch> adapters_ = std::make_unique<AdapterSwitch>();
  const RankGroup* const group_;
  std::vector<model::Share> shares_;  // in a group; same order as `wanted_`
  // In a group, as Parameter::parts; same order as `wanted_`.
  std::vector<std::shared_ptr<const MatrixParts>> parts_;
  std::vector<at::Tensor> made_;                    // same order as `wanted_`
  std::unique_ptr<DequantizedMemory> dequantized_;  // or null
  // Same order as `made_`; null for parameters that are not quantized.
  std::vector<std::shared_ptr<QuantizedMatrix>> quantized_;
  std::vector<Parameter> parameters_;
  std::vector<at::Tensor> cast_, casts_;  // parameters with bf16 copies, and the copies
};

}  // namespace longhaul::worker
