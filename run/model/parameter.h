// Describes a parameter of a model: name, shape, initial values, use, and how ranks share it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "run/model/model_spec.h"

namespace longhaul::model {

// The part of a model that holds a parameter. The head's part includes the final norm.
enum class Role : uint8_t { kEmbedding, kBlock, kHead };

// A matrix is (outputs, inputs), a table (rows, channels). A vector has no columns.
struct Shape {
  uint32_t rows = 0, columns = 0;
  bool is_matrix() const { return columns > 0; }
  uint64_t elements() const { return uint64_t{rows} * std::max(columns, 1u); }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// Initial values are normal numbers. Deviation 0: all equal the mean.
struct Initial {
  double mean = 0, deviation = 0;
};

// How the ranks of a tensor-parallel group share a parameter (share.h), after Megatron:
//   kNothing  every rank has all of it: norms, positions, biases that are added to a summed output
//   kRows     "column-parallel": each rank computes some outputs, with their biases
//   kColumns  "row-parallel": each rank reads some inputs; outputs are summed over ranks
//   kExperts  a rank has all of it or nothing, because it belongs to one expert
enum class Along : uint8_t { kNothing, kRows, kColumns, kExperts };
// The smallest unit that is never cut between ranks.
//   kChannel  one row or column; every rank has equally many
//   kHead     the channels of a head of queries; every rank has equally many heads
//   kKvHead   the channels of a head of keys or values; fewer heads than ranks are repeated
//   kToken    a token's row of embedding or head; ranks may differ by one row
enum class Unit : uint8_t { kChannel, kHead, kKvHead, kToken };
struct Split {
  Along along = Along::kNothing;
  Unit unit = Unit::kChannel;
  uint32_t stacked = 1;  // matrices stacked in the rows, each shared on its own
  uint32_t expert = 0;   // kExperts: the expert's index in the block
};

// In names, '#' stands for the block's number in the model.
struct Parameter {
  std::string name;                   // global name in checkpoints and messages
  std::string published;              // name in Hugging Face's checkpoints; an adapter's in PEFT's
  bool published_transposed = false;  // published as (inputs, outputs)
  bool first_rows_suffice = false;    // the published table may be longer (positions)
  // Set if the published tensor holds several parameters, stacked in its rows: the number of its
  // rows, and the first one of this parameter.
  uint32_t published_rows = 0, published_first_row = 0;
  // Set for an adapter of such a parameter: which of the tensor's adapted parameters it adapts,
  // counted from 0, and how many there are.
  uint32_t published_part = 0, published_parts = 1;
  Role role = Role::kBlock;
  Shape shape;
  Initial initial;
  bool in_product = false;  // cast to the type of matrix products
  Split split;
  // Every rank that holds the parameter holds all of it, and uses it for its own heads or tokens.
  // Each rank then has a part of the gradient; their sum over these ranks is the gradient.
  bool for_own_part = false;
  // A LoRA adapter: no published model has it, so it always begins with `initial`.
  bool adapter = false;
  // A bias of Balance::kBias: in checkpoints, but without gradient and optimizer state, because the
  // stage moves it itself. No published model has it.
  bool balances = false;
  // Without gradient and optimizer state, and not in checkpoints: read again from the published
  // model when a stage is made.
  bool frozen = false;
  // How a frozen matrix of a block is stored (LoraSpec::quantize_base).
  QuantizeBase quantized = QuantizeBase::kNone;

  bool is_published() const { return !adapter && !balances; }
  bool decays() const { return shape.is_matrix(); }  // weight decay applies
  // True if a frozen parameter is stored only in the type of products, or quantized. Norms stay
  // fp32.
  bool is_frozen_in_compute_type() const { return frozen && (in_product || shape.is_matrix()); }
  bool is_quantized() const { return quantized != QuantizeBase::kNone; }
  bool is_block_matrix() const { return role == Role::kBlock && shape.is_matrix(); }
  // The matrix of a tied model: its rows are looked up, and logits are products with it.
  bool is_tied() const { return role == Role::kEmbedding && in_product; }
};

// A parameter of a certain block. `block` is the block's number in the model; for a parameter of
// embedding or head it means nothing.
struct PlacedParameter {
  Parameter parameter;
  uint32_t block = 0;
  // A tied head: the embedding's part has the same matrix. Count a model's parameters without it.
  bool repeated = false;
  // The parameter's two names, with the block's number in place of '#'.
  std::string Name() const;
  std::string PublishedName() const;
};

}  // namespace longhaul::model
