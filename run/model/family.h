// Families of models as data: everything about a family but its layers' code (worker/stage) stands
// in one file, gpt.cc, llama.cc or moe.cc.
//
//   const model::Family& family = model::FamilyOf(spec);
//   for (const model::Parameter& parameter : family.parameters(spec, rows)) ...
//
// Pure, thread-safe. A ModelSpec is complete and without Problems, unless said otherwise.
#ifndef LONGHAUL_RUN_MODEL_FAMILY_H_
#define LONGHAUL_RUN_MODEL_FAMILY_H_

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

// The most that the keys of all families may be; the least is 1.
inline constexpr uint32_t kMostLayers = 4096, kMostHidden = 1u << 17, kMostHeads = 1u << 12;
inline constexpr uint32_t kMostContext = 1u << 22, kMostVocabulary = 1u << 24;

// A key of the run file's `model` beyond those of all families. The file may leave all out but
// required ones; the spec's field then has the value that is named here, or its initial one.
struct WholeKey {
  uint32_t ModelSpec::*field;
  uint32_t most;
  uint32_t ModelSpec::*same_as = nullptr;  // left out: this field's value
  uint32_t least = 1;
};
struct RequiredKey {
  uint32_t ModelSpec::*field;
  uint32_t most;                       // from 1
  std::string_view meaning;            // "the width of its MLP"
  uint32_t (*usual)(uint32_t hidden);  // what people often take
};
struct RealKey {
  double ModelSpec::*field;
  double most;  // above 0
  double left_out;
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
// The field as the run file says it: "2", "1e-05", "true", "llama3".
std::string TextOf(const Key& key, const ModelSpec& spec);
// Gives the field the value that it has when the file leaves it out. A required one stays.
void LeaveOut(const Key& key, ModelSpec* spec);

// A combination of keys that cannot be: "model.heads: ...", and the key to change.
struct Problem {
  std::string_view key;
  std::string text;
};

// The shape of a published model, by the name that `model.preset` takes.
struct Preset {
  std::string name;
  // As published (`vocabulary` included), but for `tied`: over several stages that costs two
  // matrices a step on a link, so it is the run file's to say.
  ModelSpec model;
};

// Values of a token that one rank of a layer leaves for its backward.
struct Kept {
  uint64_t full = 0;  // in fp32
  uint64_t half = 0;  // in the type that matrix products compute in
};

struct Family {
  ModelFamily id;
  std::string_view name;
  std::vector<Key> keys;
  // What is wrong with a spec whose keys are each in range; empty: nothing.
  std::vector<Problem> (*problems)(const ModelSpec& spec);
  // Parameters of the published model, in its order, a block's once, without adapters. A tied model
  // has no matrix for the head.
  std::vector<Parameter> (*parameters)(const ModelSpec& spec, uint32_t vocabulary_rows);
  // What lies between split matrices is split with them, what these multiply is whole on every
  // rank; sums and norms are whole, or of a rank's tokens.
  Kept (*kept_by_block)(const ModelSpec& spec, const Ranks& ranks);
  Kept (*kept_by_final_norm)(const ModelSpec& spec);
  // Channels of a token's keys in a block; its values have as many.
  uint32_t (*kv_channels)(const ModelSpec& spec);
  // Begins the published names of all parameters but the head's matrix; published checkpoints of
  // the bare model leave it out.
  std::string_view published_prefix;
  // Modules that LoRA adapts where nobody says which, as PEFT's usual ones.
  std::vector<std::string> usual_targets;
  std::vector<Preset> presets;  // smaller ones first
};

const std::vector<const Family*>& Families();
const Family& FamilyOf(ModelFamily family);
inline const Family& FamilyOf(const ModelSpec& spec) {
  return FamilyOf(spec.family);
}

// The presets of all families.
const std::vector<Preset>& Presets();

// Null: the family has no key of that name.
const Key* FindKey(const Family& family, std::string_view name);
// Each key once, although several families may have it.
std::vector<Key> KeysOfFamilies();

// What cannot be of heads, hidden and the family's keys. For any spec with heads > 0.
std::vector<Problem> Problems(const ModelSpec& spec);

// Some of a model's layers: what a stage holds.
struct Part {
  uint32_t first_layer = 0, layers = 0;
  bool embedding = false, head = false;
};
// The parameters of a part that has the embedding, the head, both or neither, in the model's order,
// blocks once. The head of a tied model without the embedding has that one's matrix behind all
// else. Where the model has adapters each stands behind its module's bias or weight, and all else
// is frozen; embedding and head of a tied model are then two, as neither changes.
std::vector<Parameter> ParametersOf(const ModelSpec& spec, uint32_t vocabulary_rows, bool embedding,
                                    bool head);
// All parameters of a part, in the model's order.
std::vector<PlacedParameter> ParametersOf(const ModelSpec& spec, uint32_t vocabulary_rows,
                                          const Part& part);

}  // namespace longhaul::model

#endif  // LONGHAUL_RUN_MODEL_FAMILY_H_
