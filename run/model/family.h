// Model families as data. Everything about a family, except the code of its layers (worker/stage),
// is in one file: gpt.cc, llama.cc or moe.cc.
//
//   const model::Family& family = model::FamilyOf(spec);
//   for (const model::Parameter& parameter : family.parameters(spec, rows)) ...
//
// Pure, thread-safe. Functions expect a complete ModelSpec without Problems, unless they say
// otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "run/model/model_spec.h"
#include "run/model/parameter.h"
#include "run/model/share.h"

namespace longhaul::model {

// Maximum of the keys that all families have; the minimum is 1.
inline constexpr uint32_t kMostLayers = 4096, kMostHidden = 1u << 17, kMostHeads = 1u << 12;
inline constexpr uint32_t kMostContext = 1u << 22, kMostVocabulary = 1u << 24;

// A key of the run file's `model` that only some families have, by the type of its value. `field`:
// the member of ModelSpec that holds the value. The file may omit all keys except required ones;
// the field then has the value given here, or its initial value.
struct WholeKey {
  uint32_t ModelSpec::*field;
  uint32_t most;
  // If the file omits the key: the field whose value is taken. Null: the initial value.
  uint32_t ModelSpec::*same_as = nullptr;
  uint32_t least = 1;
};
struct RequiredKey {
  uint32_t ModelSpec::*field;
  uint32_t most;                       // the minimum is 1
  std::string_view meaning;            // "the width of its MLP"
  uint32_t (*usual)(uint32_t hidden);  // a frequent choice
};
struct RealKey {
  double ModelSpec::*field;
  double most;      // the minimum is above 0
  double left_out;  // the value if the file omits the key
  bool may_be_zero = false;
};
// Numbers above 0 and up to `most`.
struct RealsKey {
  std::vector<double> ModelSpec::*field;
  double most;
};
struct FlagKey {
  bool ModelSpec::*field;
};
struct ScalingKey {
  RopeScaling ModelSpec::*field;
};
struct BalanceKey {
  Balance ModelSpec::*field;
};
struct NormsKey {
  Norms ModelSpec::*field;
};
struct ActivationKey {
  Activation ModelSpec::*field;
};
struct Key {
  std::string_view name;  // "kv_heads"
  std::variant<WholeKey, RequiredKey, RealKey, RealsKey, FlagKey, ScalingKey, BalanceKey, NormsKey,
               ActivationKey>
      value;
  std::string_view doc;  // one sentence for the reference of run files, without its full stop
};
// The field's value as in a run file: "2", "1e-05", "true", "llama3".
std::string TextOf(const Key& key, const ModelSpec& spec);
// Sets the field to its value for a file that omits the key. A required field does not change.
void LeaveOut(const Key& key, ModelSpec* spec);

// An impossible combination of keys, or a value out of range.
struct Problem {
  std::string_view key;  // the key to change: "heads"
  std::string text;      // for people: "model.heads: ..."
};

// The shape of a published model, by its name in `model.preset`.
struct Preset {
  std::string name;
  // As published (`vocabulary` included), except `tied`, which the run file sets, because over
  // several stages a tied model sends two matrices a step over a link.
  ModelSpec model;
};

// Number of values per token that one rank keeps from a layer's forward for its backward.
struct Kept {
  uint64_t full = 0;  // in fp32
  uint64_t half = 0;  // in the type that matrix products compute in
  // In fp32, on a CPU, where weights of norms are trained: what goes into the product with them. On
  // a GPU a norm is one kernel, which makes it again.
  uint64_t before_weights = 0;
};

// A family's descriptor. The function pointers are not null.
struct Family {
  ModelFamily id;
  std::string_view name;
  std::vector<Key> keys;
  // Returns impossible combinations; each key must be in range. Empty: the model is possible.
  std::vector<Problem> (*problems)(const ModelSpec& spec);
  // Parameters of the published model in the published order, without adapters. The parameters of a
  // block are there once, for all blocks. A tied model has no matrix for the head.
  // `vocabulary_rows`: rows of embedding and head.
  std::vector<Parameter> (*parameters)(const ModelSpec& spec, uint32_t vocabulary_rows);
  // Activations that a block keeps on one rank. Activations between a column-parallel matrix and
  // the next row-parallel one (Along in parameter.h) are divided among ranks. The input of a
  // column-parallel matrix is whole on every rank. Residual sums and norms are whole too, unless
  // ranks.share_tokens is true: then a rank keeps only the values of its own tokens.
  Kept (*kept_by_block)(const ModelSpec& spec, const Ranks& ranks);
  Kept (*kept_by_final_norm)(const ModelSpec& spec);
  // Number of channels of a token's keys in a block; the token's values have as many.
  uint32_t (*kv_channels)(const ModelSpec& spec);
  // Prefix of the published names of all parameters except the head's matrix. Published checkpoints
  // of the bare model omit it.
  std::string_view published_prefix;
  // Modules that LoRA adapts by default, as in PEFT.
  std::vector<std::string> (*usual_targets)(const ModelSpec& spec);
  std::vector<Preset> presets;  // smaller ones first
};

// All families, in the order of the enum. Descriptors are valid until the program ends.
const std::vector<const Family*>& Families();
const Family& FamilyOf(ModelFamily family);
inline const Family& FamilyOf(const ModelSpec& spec) {
  return FamilyOf(spec.family);
}

// Presets of all families.
const std::vector<Preset>& Presets();

// Null: the family has no key of that name.
const Key* FindKey(const Family& family, std::string_view name);
// Returns each key once, although several families may have it.
std::vector<Key> KeysOfFamilies();

// Returns the family's keys that are out of range or, if there are none, impossible combinations of
// heads, hidden and these keys. Empty: the model is possible. Takes any spec with heads > 0.
std::vector<Problem> Problems(const ModelSpec& spec);

// A part of a model, as a stage holds it: consecutive layers, and perhaps embedding or head.
struct Part {
  uint32_t first_layer = 0, layers = 0;
  bool embedding = false, head = false;
};
// Returns the parameters of a part of the model, in the model's order; the parameters of a block
// are there once. The part has the embedding, the head, both or neither. If the part has the head
// without the embedding and the model is tied, the embedding's matrix comes last. With LoRA,
// adapters follow their module's bias or weight, and all other parameters are frozen; a part with
// only one of embedding and head then gets a matrix of its own, because neither matrix changes.
std::vector<Parameter> ParametersOf(const ModelSpec& spec, uint32_t vocabulary_rows, bool embedding,
                                    bool head);
// Returns all parameters of a part, in the model's order.
std::vector<PlacedParameter> ParametersOf(const ModelSpec& spec, uint32_t vocabulary_rows,
                                          const Part& part);

}  // namespace longhaul::model
