// Makes the Value of a row of Keys() (keys.h): a type and range for a member of RunSpec. A generic
// function `at` returns the member of a given RunSpec, so that one row can read, print and copy the
// member:
//
//   Whole(LH_AT(train.steps), 0, 1000)
//
// A Value keeps copies of its functions and texts, no references.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/yaml/yaml_reader.h"
#include "base/yaml/yaml_text.h"
#include "run/file/keys.h"

// LH_AT makes a function that returns a member of a RunSpec. LH_LORA, LH_DPO and LH_REPLAY: a
// member of an optional section, which is created when one of its keys is read.
#define LH_AT(member)       \
  [](auto& spec) -> auto& { \
    return spec.member;     \
  }
#define LH_LORA(member)                   \
  [](auto& spec) -> auto& {               \
    return Begun(spec.model.lora).member; \
  }
#define LH_DPO(member)                   \
  [](auto& spec) -> auto& {              \
    return Begun(spec.train.dpo).member; \
  }
#define LH_REPLAY(member)             \
  [](auto& spec) -> auto& {           \
    return Begun(spec.replay).member; \
  }

namespace longhaul::config {

// Returns the section's value. If there is none, the first overload creates one; the second one
// must not be called then.
template <class T>
T& Begun(std::optional<T>& section) {
  return section ? *section : section.emplace();
}
template <class T>
const T& Begun(const std::optional<T>& section) {
  return *section;
}

template <class At>
using MemberAt = std::remove_cvref_t<std::invoke_result_t<At, RunSpec&>>;

// Makes the Value of a member. `make(name, Member* target)` returns the Field that reads the
// member; `target` is null where only the Field's description is needed. `text` prints the member.
// `schema`: members of the JSON Schema's object. Reading calls `at` only when a file has the key,
// because `at` may create the member's section.
template <class At, class Make, class Text>
Value Bound(At at, Make make, const Text& text, std::string schema) {
  Value value;
  value.field = [at, make](const std::string& name, Draft* draft) {
    Field field = make(name, nullptr);
    field.read = [at, make, name, draft](Reader& reader, const YAML::Node& node,
                                         const std::string& path) {
      make(name, &at(draft->spec)).read(reader, node, path);
    };
    return field;
  };
  value.text = [at, text](const RunSpec& spec) { return std::string(text(at(spec))); };
  value.copy = [at](const RunSpec& from, RunSpec* to) { at(*to) = at(from); };
  value.schema = std::move(schema);
  return value;
}

// Print a value as it is, and as a text in YAML quotes.
inline const auto kPlain = [](const auto& value) { return fmt::format("{}", value); };
inline const auto kQuoted = [](const std::string& value) { return Quote(value); };

// A whole number from `least` to `most`.
template <class At>
Value Whole(At at, std::type_identity_t<MemberAt<At>> least,
            std::type_identity_t<MemberAt<At>> most) {
  return Bound(
      at,
      [least, most](std::string name, MemberAt<At>* target) {
        return Whole(std::move(name), target, least, most);
      },
      kPlain, fmt::format(R"("type": "integer", "minimum": {}, "maximum": {})", least, most));
}

inline std::string OrAutoSchema(uint32_t least, uint32_t most) {
  return fmt::format(
      R"("anyOf": [{{"type": "integer", "minimum": {}, "maximum": {}}}, {{"const": "auto"}}])",
      least, most);
}

// A whole number from `least` to `most`, or auto (nullopt).
template <class At>
Value WholeOrAuto(At at, uint32_t least, uint32_t most) {
  return Bound(
      at,
      [least, most](std::string name, std::optional<uint32_t>* target) {
        return WholeOrAuto(std::move(name), target, least, most);
      },
      [](const std::optional<uint32_t>& value) {
        return value ? fmt::format("{}", *value) : "auto";
      },
      OrAutoSchema(least, most));
}

// A number from 1, or auto. `is_auto` gives a separate member that is true for auto; the number is
// then 1.
template <class At, class AtAuto>
Value NumberOrAuto(At at, AtAuto is_auto, uint32_t most) {
  Value value = WholeOrAuto(LH_AT(pipeline.stages), 1, most);  // for the schema
  value.field = [at, is_auto, most](const std::string& name, Draft* draft) {
    Field field = WholeOrAuto(name, nullptr, 1, most);
    field.read = [at, is_auto, most, name, draft](Reader& reader, const YAML::Node& node,
                                                  const std::string& path) {
      std::optional<uint32_t> number = at(draft->spec);
      WholeOrAuto(name, &number, 1, most).read(reader, node, path);
      is_auto(draft->spec) = !number;
      at(draft->spec) = number.value_or(1);
    };
    return field;
  };
  value.text = [at, is_auto](const RunSpec& spec) {
    return is_auto(spec) ? "auto" : fmt::format("{}", at(spec));
  };
  value.copy = [at, is_auto](const RunSpec& from, RunSpec* to) {
    at(*to) = at(from);
    is_auto(*to) = is_auto(from);
  };
  return value;
}

std::string RealSchema(const RealRange& range);

template <class At>
Value Real(At at, RealRange range) {
  return Bound(
      at,
      [range](std::string name, double* target) { return Real(std::move(name), target, range); },
      kPlain, RealSchema(range));
}

// A list of numbers, each in `range`.
template <class At>
Value Reals(At at, RealRange range) {
  return Bound(
      at,
      [range](std::string name, std::vector<double>* target) {
        return Reals(std::move(name), target, range);
      },
      [](const std::vector<double>& values) {
        return fmt::format("[{}]", fmt::join(values, ", "));
      },
      fmt::format(R"("type": "array", "items": {{{}}})", RealSchema(range)));
}

template <class At>
Value Flag(At at) {
  return Bound(
      at, [](std::string name, bool* target) { return Flag(std::move(name), target); }, kPlain,
      R"("type": "boolean")");
}

std::string WordsSchema(const std::vector<std::string>& words);

// One of `values`, written as its ToString.
template <class At>
Value Choice(At at, const std::vector<MemberAt<At>>& values) {
  using T = MemberAt<At>;
  std::vector<std::string> words;
  for (const T& value : values) words.emplace_back(ToString(value));
  return Bound(
      at, [values](std::string name, T* target) { return Choice(std::move(name), target, values); },
      [](const T& value) { return ToString(value); }, WordsSchema(words));
}

// One of `values`, or auto (nullopt).
template <class At>
Value ChoiceOrAuto(At at, const std::vector<typename MemberAt<At>::value_type>& values) {
  using T = typename MemberAt<At>::value_type;
  std::vector<std::string> words = {"auto"};
  for (const T& value : values) words.emplace_back(ToString(value));
  return Bound(
      at,
      [values, words](std::string name, std::optional<T>* target) {
        Field field = OneOf(std::move(name), nullptr, words);
        field.read = [check = field.read, values, target](Reader& reader, const YAML::Node& node,
                                                          const std::string& path) {
          check(reader, node, path);
          const std::string word = node.IsScalar() ? node.Scalar() : "";
          const auto found =
              std::ranges::find_if(values, [&](const T& value) { return ToString(value) == word; });
          *target = found == values.end() ? std::nullopt : std::optional(*found);
        };
        return field;
      },
      [](const std::optional<T>& value) { return std::string(value ? ToString(*value) : "auto"); },
      WordsSchema(words));
}

// A bool with a word for each value.
template <class At>
Value TwoWords(At at, const std::string& no, const std::string& yes) {
  return Bound(
      at,
      [no, yes](std::string name, bool* target) {
        Field field = OneOf(std::move(name), nullptr, {no, yes});
        field.read = [check = field.read, yes, target](Reader& reader, const YAML::Node& node,
                                                       const std::string& path) {
          check(reader, node, path);
          *target = node.IsScalar() && node.Scalar() == yes;
        };
        return field;
      },
      [no, yes](bool value) { return value ? yes : no; }, WordsSchema({no, yes}));
}

// A text that is one of `words`.
template <class At>
Value OneOf(At at, const std::vector<std::string>& words) {
  return Bound(
      at,
      [words](std::string name, std::string* target) {
        return OneOf(std::move(name), target, words);
      },
      kPlain, WordsSchema(words));
}

// A string that `check` accepts. `print`: kPlain or kQuoted.
template <class At, class Print>
Value Text(At at, const std::string& expected, const TextCheck& check, Print print) {
  return Bound(
      at,
      [expected, check](std::string name, std::string* target) {
        return Text(std::move(name), target, expected, check);
      },
      print, R"("type": "string")");
}

template <class At>
Value Time(At at, absl::Duration least, absl::Duration most) {
  return Bound(
      at,
      [least, most](std::string name, absl::Duration* target) {
        return DurationField(std::move(name), target, least, most);
      },
      Exact, R"("type": "string")");
}

template <class At>
Value Bytes(At at) {
  return Bound(
      at, [](std::string name, uint64_t* target) { return BytesField(std::move(name), target); },
      ExactBytes, R"("type": ["string", "integer"], "minimum": 0)");
}

// A field with its own form: `read` gets the reader, the value, the value's path and `expected`
// (the description of a right value for messages).
template <class Read>
Field Custom(std::string name, std::string expected, const Read& read) {
  Field field;
  field.key = std::move(name);
  field.expected = std::move(expected);
  field.read = [read, expected = field.expected](Reader& reader, const YAML::Node& node,
                                                 const std::string& path) {
    read(reader, node, path, expected);
  };
  return field;
}

// A text that `parse` understands. Its error messages must begin with the key's name.
template <class At>
Value Parsed(At at, const std::string& expected,
             StatusOr<MemberAt<At>> (*parse)(std::string_view text)) {
  using T = MemberAt<At>;
  return Bound(
      at,
      [expected, parse](std::string name, T* target) {
        const auto read = [=](Reader& reader, const YAML::Node& node, const std::string& path,
                              const std::string& wanted) {
          const auto text = ReadScalar(reader, node, path, wanted);
          if (!text) return;
          if (auto value = parse(*text); value.ok()) {
            *target = *value;
          } else {
            reader.Fail(node, path.substr(0, path.rfind('.') + 1).append(Message(value.status())));
          }
        };
        return Custom(std::move(name), expected, read);
      },
      [](const T& value) { return ToString(value); }, R"("type": "string")");
}

// An item, or a list of items that is not empty. `read_item` appends each item; problems go to the
// reader.
template <class T, class ReadItem>
Field OneOrList(std::string name, std::string expected, std::vector<T>* target,
                ReadItem read_item) {
  const auto read = [=](Reader& reader, const YAML::Node& node, const std::string& path,
                        const std::string& wanted) {
    target->clear();
    if (!node.IsSequence()) {
      read_item(reader, node, path, wanted, target);
    } else if (node.size() == 0) {
      reader.Fail(node, fmt::format("{}: expected {}, got an empty list", path, wanted));
    } else {
      for (const auto& item : node) read_item(reader, item, path, wanted, target);
    }
  };
  return Custom(std::move(name), std::move(expected), read);
}

// A section that a file may omit: `at` returns the std::optional member. nullopt: omitted.
template <class At>
Value OptionalSection(At at) {
  Value value;
  value.section = [at](Field* section, Draft* draft) {
    section->section.clear();  // its required keys depend on whether it exists
    section->read = [at, draft, read = section->read](Reader& reader, const YAML::Node& node,
                                                      const std::string& path) {
      if (!at(draft->spec)) at(draft->spec).emplace();
      read(reader, node, path);
    };
  };
  value.copy = [at](const RunSpec& from, RunSpec* to) { at(*to) = at(from); };
  return value;
}

}  // namespace longhaul::config
