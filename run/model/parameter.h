// A parameter of a model, as data: name, shape, first values, use, and how ranks share it.
#ifndef LONGHAUL_RUN_MODEL_PARAMETER_H_
#define LONGHAUL_RUN_MODEL_PARAMETER_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace longhaul::model {

// The part of a model that holds a parameter. The head's part begins with the final norm.
enum class Role : uint8_t { kEmbedding, kBlock, kHead };

// A matrix is (outputs, inputs), a table (rows, channels). A vector has no columns.
struct Shape {
  uint32_t rows = 0, columns = 0;
  bool is_matrix() const { return columns > 0; }
  uint64_t elements() const { return uint64_t{rows} * std::max(columns, 1u); }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// First values are normal numbers. Deviation 0: all are the mean.
struct Initial {
  double mean = 0, deviation = 0;
};

// How the ranks of a tensor-parallel group share a parameter (share.h), after Megatron:
//   kNothing  every rank has all of it: norms, positions, biases that are added to a summed output
//   kRows     "column-parallel": each rank computes some outputs, with their biases
//   kColumns  "row-parallel": each rank reads some inputs; outputs are summed over ranks
//   kExperts  a rank has all of it or nothing: it is of one expert
enum class Along : uint8_t { kNothing, kRows, kColumns, kExperts };
// What no rank cuts.
//   kChannel  one row or column; every rank has equally many
//   kHead     the channels of a head of queries; every rank has equally many heads
//   kKvHead   the channels of a head of keys or values; fewer heads than ranks are repeated
//   kToken    a token's row of embedding or head; ranks may differ by one row
enum class Unit : uint8_t { kChannel, kHead, kKvHead, kToken };
struct Split {
  Along along = Along::kNothing;
  Unit unit = Unit::kChannel;
  uint32_t stacked = 1;  // matrices one below another in the rows, each shared on its own
  uint32_t expert = 0;   // kExperts: its number in the block
};

// '#' in names stands for the block's number, counted over the model.
struct Parameter {
  std::string name;                   // in checkpoints and messages; global
  std::string published;              // in Hugging Face's checkpoints, an adapter's in PEFT's
  bool published_transposed = false;  // there (inputs, outputs)
  bool first_rows_suffice = false;    // a published table may have more: positions
  Role role = Role::kBlock;
  Shape shape;
  Initial initial;
  bool in_product = false;  // cast to the type that matrix products compute in
  Split split;
  // Every rank that has it has all of it, and uses it for its own heads or tokens: gradients are
  // parts of a sum over these ranks.
  bool for_own_part = false;
  // LoRA's: no published model has it, so it always begins with `initial`.
  bool adapter = false;
  // The bias of Balance::kBias: it has no gradient and no optimizer state, because the stage itself
  // moves it. It is in checkpoints, and in no published model.
  bool balances = false;
  // No gradient, no moments, in no checkpoint. Who makes a stage reads it where the run began.
  bool frozen = false;

  bool is_published() const { return !adapter && !balances; }
  bool decays() const { return shape.is_matrix(); }  // by the optimizer's weight decay
  // Held in the type that products compute in alone, where it is frozen. Norms stay fp32.
  bool is_frozen_in_compute_type() const { return frozen && (in_product || shape.is_matrix()); }
  bool is_block_matrix() const { return role == Role::kBlock && shape.is_matrix(); }
  // The one matrix of a tied model: rows are looked up, and logits are products with it.
  bool is_tied() const { return role == Role::kEmbedding && in_product; }
};

// A parameter of a certain block; `block` means nothing outside blocks.
struct PlacedParameter {
  Parameter parameter;
  uint32_t block = 0;
  // The part with the embedding has it, too. Whoever counts a model's parameters leaves this out.
  bool repeated = false;
  std::string Name() const;
  std::string PublishedName() const;
};

}  // namespace longhaul::model

#endif  // LONGHAUL_RUN_MODEL_PARAMETER_H_
