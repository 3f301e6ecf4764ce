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

// A key of the run file's `model` that only some families have. The file may omit all keys except
// required ones; the field then has the value given here, or its initial value.
struct WholeKey {
  uint32_t ModelSpec::*field;
  uint32_t most;
  uint32_t ModelSpec::*same_as = nullptr;  // omitted: this field's value
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
struct Key {
  std::string_view name;  // "kv_heads"
  std::variant<WholeKey, RequiredKey, RealKey, FlagKey, ScalingKey, BalanceKey> value;
  std::string_view doc;  // one sentence for the reference of run files, without its full stop
};
// The field's value as in a run file: "2", "1e-05", "true", "llama3".
std::string TextOf(const Key& key, const ModelSpec& spec);
// Sets the field to its value for a file that omits the key. A required field does not change.
void LeaveOut(const Key& key, ModelSpec* spec);

// An impossible combination of keys: its text, "model.heads: ...", and the key to change.
struct Problem {
  std::string_view key;
  std::string text;
};

// The shape of a published model, by its name in `model.preset`.
struct Preset {
  std::string name;
  // As published (`vocabulary` included), except `tied`, which the run file sets: over several
  // stages, tying costs two matrices a step on a link.
  ModelSpec model;
};

// Values per token that one rank keeps from a layer's forward for its backward.
struct Kept {
  uint64_t full = 0;  // in fp32
  uint64_t half = 0;  // in the type that matrix products compute in
};

struct Family {
  ModelFamily id;
  std::string_view name;
  std::vector<Key> keys;
  // Returns impossible combinations, if each key is in range. Empty: the model is possible.
  std::vector<Problem> (*problems)(const ModelSpec& spec);
  // Parameters of the published model in the published order, without adapters. Those of one block
  // stand for all blocks. A tied model has no matrix for the head.
  std::vector<Parameter> (*parameters)(const ModelSpec& spec, uint32_t vocabulary_rows);
  // Activations that a block keeps on one rank. Those between a matrix that is split by columns and
  // the next one, split by rows, are divided among ranks. The input of the former is whole on every
  // rank. Residual sums and norms are whole too, unless ranks.share_tokens: then a rank keeps those
  // of its tokens.
  Kept (*kept_by_block)(const ModelSpec& spec, const Ranks& ranks);
  Kept (*kept_by_final_norm)(const ModelSpec& spec);
  // Channels of a token's keys in a block; its values have as many.
  uint32_t (*kv_channels)(const ModelSpec& spec);
  // Prefix of the published names of all parameters except the head's matrix. Published checkpoints
  // of the bare model omit it.
  std::string_view published_prefix;
  // Modules that LoRA adapts by default, as in PEFT.
  std::vector<std::string> usual_targets;
  std::vector<Preset> presets;  // smaller ones first
};

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

// Returns impossible combinations of heads, hidden and the family's keys. For any spec with heads >
// 0.
std::vector<Problem> Problems(const ModelSpec& spec);

// A range of a model's layers, as a stage holds it.
struct Part {
  uint32_t first_layer = 0, layers = 0;
  bool embedding = false, head = false;
};
// Returns the parameters of a part of the model, in the model's order; those of a block are there
// once. The part has the embedding, the head, both or neither. If it has the head alone and the
// model is tied, the embedding's matrix comes last. With LoRA, adapters follow their module's bias
// or weight, and all other parameters are frozen. Embedding and head of a tied model are then
// separate, because neither changes.
std::vector<Parameter> ParametersOf(const ModelSpec& spec, uint32_t vocabulary_rows, bool embedding,
                                    bool head);
// Returns all parameters of a part, in the model's order.
std::vector<PlacedParameter> ParametersOf(const ModelSpec& spec, uint32_t vocabulary_rows,
                                          const Part& part);

}  // namespace longhaul::model
