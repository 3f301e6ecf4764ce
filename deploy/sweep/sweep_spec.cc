#include "deploy/sweep/sweep_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/yaml/yaml_reader.h"
#include "base/yaml/yaml_text.h"
#include "run/file/custom_values.h"
#include "run/file/link_quality.h"
#include "run/file/values.h"

namespace longhaul {
namespace {

using config::Field;
using config::Parsed;
using config::Reader;
using config::Required;
using config::Table;
using config::Text;
using config::Whole;

constexpr size_t kLongestText = 4096;
constexpr size_t kLongestName = 32;
constexpr size_t kLongestList = 1000;

using ReadItem =
    std::function<void(Reader& reader, const YAML::Node& item, const std::string& path)>;

// A list with at least one item, or one item alone.
Field List(std::string key, std::string expected, ReadItem read_item) {
  const auto read = [read_item = std::move(read_item)](Reader& reader, const YAML::Node& node,
                                                       const std::string& path,
                                                       const std::string& wanted) {
    if (!node.IsSequence()) {
      read_item(reader, node, path);
    } else if (node.size() == 0 || node.size() > kLongestList) {
      reader.Fail(node,
                  fmt::format("{}: expected {}, got a list of {}", path, wanted, node.size()));
    } else {
      for (const auto& item : node) read_item(reader, item, path);
    }
  };
  return config::Custom(std::move(key), std::move(expected), read);
}

// Adds `value` to `target` unless it is there: a point that occurs twice is a mistake.
template <class T>
void AddOnce(std::vector<T>* target, T value, Reader& reader, const YAML::Node& item,
             const std::string& path) {
  if (std::find(target->begin(), target->end(), value) != target->end()) {
    reader.Fail(item, fmt::format("{}: {} is here twice; repeats: N runs points several times",
                                  path, config::Describe(item)));
    return;
  }
  target->push_back(std::move(value));
}

// A list of values that `parse` knows, each once.
template <class T>
Field ParsedList(std::string key, std::vector<T>* target, const std::string& expected,
                 StatusOr<T> (*parse)(std::string_view text)) {
  return List(
      std::move(key), expected,
      [target, expected, parse](Reader& reader, const YAML::Node& item, const std::string& path) {
        const auto value = config::ReadParsed(reader, item, path, expected, parse);
        if (value) AddOnce(target, *value, reader, item, path);
      });
}

Field Schedules(SweepSpec* spec) {
  std::vector<std::string> names;
  for (const ScheduleTraits& one : kSchedules) names.emplace_back(one.name);
  const std::string known = fmt::format("{}", fmt::join(names, ", "));
  const std::string expected = "schedules: " + known;
  return List(
      "schedules", expected,
      [spec, known, expected](Reader& reader, const YAML::Node& item, const std::string& path) {
        const auto text = config::ReadScalar(reader, item, path, expected);
        if (!text) return;
        for (const ScheduleTraits& one : kSchedules) {
          if (*text == one.name) {
            AddOnce(&spec->schedules, one.kind, reader, item, path);
            return;
          }
        }
        reader.FailExpected(item, path, "one of " + known);
      });
}

std::string CheckName(std::string_view name) {
  const bool good = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '+';
  });
  if (good && !name.empty() && name.size() <= kLongestName) return "";
  return fmt::format("expected a name of 1 to {} letters, digits and -_.+, got '{}'", kLongestName,
                     name.substr(0, 2 * kLongestName));
}

// A mapping of names that the user chooses; `read_entry` gets the value.
Field Named(std::string key, std::string expected,
            std::function<void(Reader& reader, const std::string& name, const YAML::Node& value,
                               const std::string& path)>
                read_entry) {
  const auto read = [read_entry = std::move(read_entry)](Reader& reader, const YAML::Node& node,
                                                         const std::string& path,
                                                         const std::string& wanted) {
    if (!node.IsMap() || node.size() == 0 || node.size() > kLongestList) {
      reader.FailExpected(node, path, wanted);
      return;
    }
    std::vector<std::string> names;
    for (const auto& entry : node) {
      const auto name = config::ReadScalar(reader, entry.first, path, "a name");
      if (!name) continue;
      if (const std::string problem = CheckName(*name); !problem.empty()) {
        reader.Fail(entry.first, fmt::format("{}: {}", path, problem));
      } else if (std::find(names.begin(), names.end(), *name) != names.end()) {
        reader.Fail(entry.first, fmt::format("{}: the name '{}' is here twice", path, *name));
      } else {
        names.push_back(*name);
        read_entry(reader, *name, entry.second, fmt::format("{}.{}", path, *name));
      }
    }
  };
  return config::Custom(std::move(key), std::move(expected), read);
}

Field Links(SweepSpec* spec) {
  return Named("links",
               "names of codec pairs, such as paper: { forward: tah, backward: fixed:bits=6 }, or "
               "default: default",
               [spec](Reader& reader, const std::string& name, const YAML::Node& value,
                      const std::string& path) {
                 SweepCodecs pair;
                 pair.name = name;
                 const std::string expected = "a codec such as tah or \"fixed:bits=6\"";
                 const Table table = {
                     Required(config::CodecField("forward", &pair.codecs.forward, expected)),
                     Required(config::CodecField("backward", &pair.codecs.backward, expected))};
                 const bool is_word = value.IsScalar();
                 const auto named =
                     is_word ? std::ranges::find(kLinkPairs, value.Scalar(), &LinkPair::name)
                             : kLinkPairs.end();
                 if (named != kLinkPairs.end()) {
                   pair.codecs = {CodecSpec(named->forward), CodecSpec(named->backward)};
                 } else if (value.IsNull() || is_word) {
                   reader.FailExpected(value, path,
                                       "{ forward: CODEC, backward: CODEC }, or default, fast, "
                                       "paper, exact or auto");
                   return;
                 } else {
                   reader.ReadMap(value, path, table);
                   reader.RequireAll(table, path);
                 }
                 spec->links.push_back(std::move(pair));
               });
}

// A scalar as an item of a flow list: a text stays one, and what would end the item is quoted.
std::string FlowItem(const YAML::Node& item, const std::string& value) {
  const bool plain = !config::IsQuoted(item) && value.find_first_of(",[]{}") == std::string::npos;
  return plain ? value : config::Quote(value);
}

// A value of the run file as --set takes it; nullopt and a problem for what is no value or list.
std::optional<std::string> OverrideValue(Reader& reader, const YAML::Node& node,
                                         const std::string& path) {
  constexpr std::string_view kExpected =
      "a value or a list of values; a section's keys are set one by one, such as train.steps: 20";
  if (!node.IsSequence()) {
    const auto value = config::ReadScalar(reader, node, path, kExpected);
    if (!value) return std::nullopt;
    return config::IsQuoted(node) ? config::Quote(*value) : *value;
  }
  if (node.size() > kLongestList) {
    reader.Fail(node, fmt::format("{}: expected at most {} values, got {}", path, kLongestList,
                                  node.size()));
    return std::nullopt;
  }
  std::vector<std::string> items;
  for (const auto& item : node) {
    const auto value = config::ReadScalar(reader, item, path, "a value in the list");
    if (!value) return std::nullopt;
    items.push_back(FlowItem(item, *value));
  }
  return fmt::format("[{}]", fmt::join(items, ", "));
}

// { train.steps: 20 } as {"train.steps=20"}.
constexpr std::string_view kOverrides = "keys of the run file, such as { train.steps: 20 }";
void ReadOverrides(std::vector<std::string>* target, Reader& reader, const YAML::Node& node,
                   const std::string& path) {
  if (!node.IsMap() || node.size() > kLongestList) {
    reader.FailExpected(node, path, kOverrides);
    return;
  }
  for (const auto& entry : node) {
    const auto key = config::ReadScalar(reader, entry.first, path, kOverrides);
    if (!key) continue;
    if (key->empty() || key->find('=') != std::string::npos) {
      reader.FailExpected(entry.first, path, kOverrides);
      continue;
    }
    const std::string name = fmt::format("{}.{}", path, *key);
    const auto value = OverrideValue(reader, entry.second, name);
    if (value) target->push_back(fmt::format("{}={}", *key, *value));
  }
}

Field Overrides(SweepSpec* spec) {
  return config::Custom(
      "set", std::string(kOverrides),
      [spec](Reader& reader, const YAML::Node& node, const std::string& path,
             const std::string& /*wanted*/) { ReadOverrides(&spec->set, reader, node, path); });
}

Field Variants(SweepSpec* spec) {
  return Named("variants", "names of changes to the run, such as long: { train.steps: 200 }",
               [spec](Reader& reader, const std::string& name, const YAML::Node& value,
                      const std::string& path) {
                 SweepVariant variant{name, {}};
                 ReadOverrides(&variant.set, reader, value, path);
                 spec->variants.push_back(std::move(variant));
               });
}

Field Workers(SweepSpec* spec) {
  return config::WholeOrAuto("workers", &spec->workers, 1, 64);
}

config::TextCheck AtMost(size_t longest) {
  return [longest](std::string_view text) -> std::string {
    if (!text.empty() && text.size() <= longest) return "";
    return fmt::format("expected 1 to {} bytes, got {}", longest, text.size());
  };
}

// The lines of a mapping in block style, behind as many empty lines as are before it in the file:
// whoever parses them names places of the file.
std::string BlockText(std::string_view yaml, const YAML::Mark& begin) {
  std::string text;
  int number = 0;
  for (size_t at = 0; at < yaml.size(); ++number) {
    const size_t end = std::min(yaml.find('\n', at), yaml.size());
    const std::string_view line = yaml.substr(at, end - at);
    at = end + 1;
    const size_t indent = line.find_first_not_of(" \r");
    const bool empty = indent == std::string_view::npos || line[indent] == '#';
    if (number >= begin.line) {
      if (!empty && indent < static_cast<size_t>(begin.column)) break;
      text += line;
    }
    text += '\n';
  }
  return text;
}

// A run file, or the run itself.
Field Base(SweepSpec* spec, std::string_view yaml) {
  constexpr std::string_view kExpected =
      "a run file such as run.yaml, or the run's keys, each on a line of its own";
  return config::Custom("base", std::string(kExpected),
                        [spec, yaml](Reader& reader, const YAML::Node& node,
                                     const std::string& path, const std::string& wanted) {
                          if (node.IsMap() && node.Style() != YAML::EmitterStyle::Flow) {
                            spec->base_text = BlockText(yaml, node.Mark());
                            return;
                          }
                          const auto text = config::ReadScalar(reader, node, path, wanted);
                          if (!text) return;
                          if (text->empty() || text->size() > kLongestText) {
                            reader.FailExpected(node, path, wanted);
                          } else {
                            spec->base = *text;
                          }
                        });
}

Table SweepTable(SweepSpec* spec, std::string_view yaml) {
  return {Text("title", &spec->title, "a text for the report", AtMost(200)),
          Required(Base(spec, yaml)),
          Overrides(spec),
          ParsedList("rates", &spec->rates, "link rates such as [1gbit, 100mbit]", ParseLinkRate),
          ParsedList("delays", &spec->delays, "one-way delays such as [0ms, 25ms]", ParseLinkDelay),
          Parsed("jitter", &spec->jitter, "how far delays wander, such as 2ms", ParseLinkDelay),
          Parsed("loss", &spec->loss, "a share of packets such as 0.1%", ParseLoss),
          Required(Links(spec)),
          Schedules(spec),
          Variants(spec),
          Whole("repeats", &spec->repeats, 1, 1000),
          Whole("warm_up", &spec->warm_up, 0, 1'000'000),
          Workers(spec)};
}

// Without rates nothing shapes links.
void CheckShaped(SweepSpec* spec, Reader& reader) {
  spec->shaped = reader.Has("rates");
  if (spec->shaped) return;
  spec->rates = {0};
  for (const std::string key : {"delays", "jitter", "loss"}) {
    if (!reader.Has(key)) continue;
    reader.Fail(reader.PlaceOf(std::string_view(key)),
                fmt::format("{}: without rates nothing shapes the links; add rates, such as "
                            "[100mbit] or [unlimited], or leave {} out",
                            key, key));
  }
}

// Links without a delay have no jitter.
void CheckJitter(const SweepSpec& spec, Reader& reader) {
  if (spec.jitter == absl::ZeroDuration()) return;
  bool delayed = false;
  for (const absl::Duration delay : spec.delays) {
    if (delay == absl::ZeroDuration()) continue;
    delayed = true;
    const Status status = CheckLinkQuality({.delay = delay, .jitter = spec.jitter, .loss = 0});
    if (status.ok()) continue;
    reader.Fail(reader.PlaceOf(std::string_view("jitter")),
                fmt::format("jitter: {}", Message(status)));
    return;
  }
  if (delayed) return;
  reader.Fail(reader.PlaceOf(std::string_view("jitter")),
              "jitter: there is no delay that could vary; give delays, or leave jitter out");
}

}  // namespace

StatusOr<SweepSpec> ParseSweepSpec(std::string_view yaml, std::string_view file_name) {
  try {
    LH_ASSIGN_OR_RETURN(const YAML::Node root, config::LoadYaml(yaml, file_name));
    if (root.IsNull()) {
      return InvalidArgument("{}:1:1: the file is empty; expected base, links and mostly rates",
                             file_name);
    }
    SweepSpec spec;
    const Table table = SweepTable(&spec, yaml);
    Reader reader{std::string(file_name)};
    reader.ReadMap(root, "", table);
    reader.RequireAll(table);
    if (spec.delays.empty()) spec.delays = {absl::ZeroDuration()};
    CheckShaped(&spec, reader);
    CheckJitter(spec, reader);
    LH_RETURN_IF_ERROR(reader.ToStatus());
    return spec;
  } catch (const std::exception& error) {
    return InvalidArgument("{}: {}", file_name, error.what());
  }
}

std::string RateText(uint64_t bits_per_second) {
  if (bits_per_second == 0) return "unlimited";
  constexpr std::pair<uint64_t, std::string_view> kUnits[] = {
      {1'000'000'000, "gbit"}, {1'000'000, "mbit"}, {1'000, "kbit"}};
  for (const auto& [factor, name] : kUnits) {
    if (bits_per_second % factor == 0) return fmt::format("{}{}", bits_per_second / factor, name);
  }
  return fmt::format("{}bit", bits_per_second);
}

std::string DelayText(absl::Duration delay) {
  const int64_t us = absl::ToInt64Microseconds(delay);
  if (us % 1000 == 0) return fmt::format("{}ms", us / 1000);
  return fmt::format("{}us", us);
}

}  // namespace longhaul
