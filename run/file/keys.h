// The keys of a run file, one row each. A row says how its key is read, printed and checked for
// type and range, whether a resume of the run may change the key, and whether a change makes
// workers measure or build anew. The reference page and the JSON Schema are made from the rows.
//
// To add a key, add a member of RunSpec (run_spec.h) and a row (training_keys.cc or
// running_keys.cc). Impossible combinations of keys are checked in *_checks.cc.
//
// Pure; the table is made once and is then read by any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml/yaml_reader.h"
#include "run/file/run_spec.h"

namespace longhaul::config {

// A run file while it is read.
struct Draft {
  RunSpec spec;
  std::string preset;  // model.preset, which fills in omitted keys
};

// What a change of a key affects; flags.
enum Affects : unsigned {
  kNothing = 0,
  kTiming = 1,  // workers measure the times of layers anew
  kStage = 2,   // workers build their stage anew
  kModel = 4,   // parameters, data or the bits of a step: a resume must not change the key
  kAll = kTiming | kStage | kModel,
};

// The type of a key's value, bound to its member of RunSpec. values.h makes them.
struct Value {
  // Reads the value into the draft. Null: the key is a section.
  std::function<Field(std::string name, Draft* draft)> field;
  // The value as YAML: one line, or lines of a block that begin with '\n'. Null: a section, or a
  // short form of other keys that is never written.
  std::function<std::string(const RunSpec& spec)> text;
  // Null: a section whose keys are copied one by one, or a short form.
  std::function<void(const RunSpec& from, RunSpec* to)> copy;
  std::string schema;  // members of the JSON Schema's object that describe the value
  // Changes how a section is read. Null: not a section.
  std::function<void(Field* section, Draft* draft)> section = nullptr;
};

struct KeyNotes {
  std::string unit;       // of the value, for people; "": none
  std::string otherwise;  // for people: how other keys decide an omitted value; "": they do not
  // True if the key applies to this run. Null: always. A file must leave out a key that does not
  // apply; ToYaml prints it as a comment.
  bool (*applies)(const RunSpec& spec) = nullptr;
  bool required = false;
  bool auto_is_open = false;  // kModel: a resume may say auto, and the run's value is kept
  bool of_family = false;     // only the model families that list the key have it
  bool is_place = false;      // a key of a compared section that only says where something is
};

struct Key {
  std::string path;  // "train.optimizer.lr"
  Value value;
  unsigned affects = kNothing;
  std::string doc;  // one sentence, without its full stop
  KeyNotes notes;

  bool Applies(const RunSpec& spec) const;
};

// All rows, in the order of the reference and of printed files. A section has a row only if it is
// more than its keys. References and pointers to rows and nodes are valid until the program ends.
const std::vector<Key>& Keys();
// The rows of model, data, validation and train.
std::vector<Key> TrainingKeys();
// The rows of samples.
std::vector<Key> SamplesKeys();
// The rows of verify and audit.
std::vector<Key> VerifyKeys();
// All other rows.
std::vector<Key> RunningKeys();

// The rows as a tree. A node without children is a key; a node with children is a section.
struct KeyNode {
  std::string_view name;     // "lr"
  const Key* key = nullptr;  // null: a section without a row
  std::vector<KeyNode> children;
};
const KeyNode& KeyTree();

// The keys by which two specs are compared, for example on a resume. An optional section (replay)
// counts as one key.
const std::vector<const Key*>& ComparedKeys();
// The value as a run file has it, or "left out" if the key does not apply. A section's text has no
// keys with `is_place`.
std::string TextOf(const Key& key, const RunSpec& spec);
// Returns `spec` with all keys at their initial values, except keys that have one of the flags
// `affects`.
RunSpec OnlyWhatAffects(unsigned affects, const RunSpec& spec);

// Returns the table that reads a run file into `draft`, which must outlive the table.
Table TableOf(Draft* draft);

}  // namespace longhaul::config
