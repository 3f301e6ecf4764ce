#include "run/file/custom_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "codec/registry.h"
#include "run/file/topology_fields.h"
#include "run/file/values.h"
#include "run/kinds/link_pairs.h"
#include "run/model/family.h"

namespace longhaul::config {
namespace {

constexpr size_t kLongestRunName = 40;
constexpr size_t kLongestText = 4096;
constexpr size_t kLongestSource = 400;
constexpr size_t kLongestTarget = 200, kMostTargets = 100;
constexpr size_t kMostArguments = 100;
constexpr absl::Duration kLongestTime = absl::Hours(1);

std::string PairText(const CodecPair& pair) {
  return fmt::format("forward: {}, backward: {}", Quote(ToString(pair.forward)),
                     Quote(ToString(pair.backward)));
}

// Reads what a worker has of its own. Directions that it leaves out stay "" until the file is read.
void ReadException(LinksSpec* links, const std::string& name, Reader& reader,
                   const YAML::Node& node, const std::string& path) {
  auto it = std::ranges::find(links->by_worker, name, [](const auto& one) { return one.first; });
  if (it == links->by_worker.end()) {
    it = links->by_worker.insert(
        it, {name, {.codecs = {CodecSpec(), CodecSpec()}, .transport = std::nullopt}});
  }
  LinkException& exception = it->second;
  TransportKind transport = TransportKind::kUcx;
  reader.ReadMap(node, path,
                 {CodecOrAuto("forward", &exception.codecs.forward),
                  CodecOrAuto("backward", &exception.codecs.backward),
                  Choice("transport", &transport, ListeningTransports())});
  if (node.IsMap() && node["transport"]) exception.transport = transport;
}

// Worker names are not known here; any name of sensible length is one.
void ReadExceptions(LinksSpec* links, Reader& reader, const YAML::Node& node,
                    const std::string& path) {
  Table workers;
  bool only_scalars = true;
  for (const auto& entry : node) {
    only_scalars &= entry.first.IsScalar();
    const auto name = ReadScalar(reader, entry.first, path, "a worker's name");
    if (!name) continue;
    if (name->empty() || name->size() > kLongestText) {
      reader.FailExpected(entry.first, path, "a worker's name");
      continue;
    }
    // ReadMap reports the second one.
    if (std::ranges::find(workers, *name, &Field::key) != workers.end()) continue;
    workers.push_back(Section(*name, {}));
    workers.back().read = [links, name = *name](Reader& r, const YAML::Node& value,
                                                const std::string& where) {
      ReadException(links, name, r, value, where);
    };
  }
  if (only_scalars) reader.ReadMap(node, path, workers);
}

std::string ExceptionsText(const LinksSpec& links) {
  std::string out;
  for (const auto& [worker, exception] : links.by_worker) {
    out += fmt::format("\n{}: {{ {}", Quote(worker), PairText(exception.codecs));
    if (exception.transport) out += fmt::format(", transport: {}", ToString(*exception.transport));
    out += " }";
  }
  return out;
}

void ReadChosen(std::vector<std::vector<CodecPair>>* chosen, Reader& reader, const YAML::Node& node,
                const std::string& path) {
  chosen->clear();
  const std::string codec = "a codec such as tah";
  for (const auto& of_replica : node) {
    std::vector<CodecPair>& pairs = chosen->emplace_back();
    for (const auto& item : of_replica) {
      CodecPair& pair = pairs.emplace_back();
      reader.ReadMap(item, path,
                     {CodecField("forward", &pair.forward, codec),
                      CodecField("backward", &pair.backward, codec)});
    }
  }
}

std::string ChosenText(const std::vector<std::vector<CodecPair>>& chosen) {
  std::string out;
  for (const std::vector<CodecPair>& pairs : chosen) {
    std::vector<std::string> texts;
    for (const CodecPair& pair : pairs) texts.push_back(fmt::format("{{ {} }}", PairText(pair)));
    out += fmt::format("\n- [{}]", fmt::join(texts, ", "));
  }
  return out;
}

// Reads `tah: { encode: 20us, decode: 11us }`. Codecs that an override does not name stay.
void ReadCodecTimes(const std::string& codec, Reader& reader, const YAML::Node& node,
                    const YAML::Node& place, const std::string& path,
                    std::vector<ReplaySpec::CodecTimes>* target) {
  auto it = std::ranges::find(*target, codec, &ReplaySpec::CodecTimes::codec);
  if (it == target->end()) it = target->insert(it, {.codec = codec});
  reader.ReadMap(node, path,
                 {DurationField("encode", &it->encode, absl::ZeroDuration(), kLongestTime),
                  DurationField("decode", &it->decode, absl::ZeroDuration(), kLongestTime)});
  for (const char* key : {"encode", "decode"}) {
    const std::string full = fmt::format("{}.{}", path, key);
    if (reader.Has(full)) continue;
    reader.Fail(place,
                fmt::format("the key '{}' is missing; expected a duration such as 20us", full));
  }
}

Field CodecTimesField(std::string name, std::vector<ReplaySpec::CodecTimes>* target) {
  const auto read = [=](Reader& reader, const YAML::Node& node, const std::string& path,
                        const std::string& expected) {
    if (!node.IsMap()) {
      reader.FailExpected(node, path, expected);
      return;
    }
    for (const auto& entry : node) {
      const auto codec = ReadScalar(reader, entry.first, path, "a codec's name");
      if (!codec) continue;
      const Status known = CodecSpec(*codec).Get().status();
      if (codec::FindFamily(*codec) != nullptr) {
        ReadCodecTimes(*codec, reader, entry.second, entry.first,
                       fmt::format("{}.{}", path, *codec), target);
        continue;
      }
      reader.Fail(entry.first, fmt::format("{}: expected a codec without parameters, got '{}'{}",
                                           path, codec->substr(0, 100),
                                           known.ok() ? "" : fmt::format("; {}", Message(known))));
    }
  };
  return Custom(std::move(name),
                "a mapping of codecs without parameters, such as { tah: { encode: 20us, ... } }",
                read);
}

std::string CodecTimesText(const std::vector<ReplaySpec::CodecTimes>& times) {
  std::string out;
  for (const ReplaySpec::CodecTimes& one : times) {
    out += fmt::format("\n{}: {{ encode: {}, decode: {} }}", Quote(one.codec), Exact(one.encode),
                       Exact(one.decode));
  }
  return out;
}

void ReadSet(Reader& reader, const YAML::Node& node, const std::string& path,
             const std::string& expected, std::vector<DataSource>* sources) {
  DataSource source;
  if (node.IsMap()) {
    reader.ReadMap(
        node, path,
        {Text("from", &source.from, "a folder with a data set", CheckFolder),
         Real("weight", &source.weight, {.least = 0, .most = 1e9, .above_least = true})});
  } else if (const auto text = ReadScalar(reader, node, path, expected)) {
    source.from = *text;
  }
  if (source.from.empty() || source.from.size() > kLongestText) {
    reader.FailExpected(node, path, expected);
  } else {
    sources->push_back(std::move(source));
  }
}

void ReadGlob(Reader& reader, const YAML::Node& node, const std::string& path,
              const std::string& expected, std::vector<std::string>* globs) {
  const auto text = ReadScalar(reader, node, path, expected);
  if (!text) return;
  if (text->empty() || text->size() > kLongestText) {
    reader.FailExpected(node, path, expected);
  } else {
    globs->push_back(*text);
  }
}

void ReadTarget(Reader& reader, const YAML::Node& node, const std::string& path,
                const std::string& expected, std::vector<std::string>* targets) {
  const auto name = ReadScalar(reader, node, path, expected);
  if (!name) return;
  if (name->empty() || name->size() > kLongestTarget || targets->size() == kMostTargets) {
    reader.FailExpected(node, path, expected);
  } else if (std::ranges::find(*targets, *name) != targets->end()) {
    reader.Fail(node, fmt::format("{}: '{}' stands there twice", path, *name));
  } else {
    targets->push_back(*name);
  }
}

std::string QuotedList(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(Quote(text));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

std::string SetsText(const std::vector<DataSource>& sets) {
  std::vector<std::string> texts;
  for (const DataSource& source : sets) {
    texts.push_back(fmt::format("{{ from: {}, weight: {} }}", Quote(source.from), source.weight));
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

constexpr char kTexts[] = R"("type": ["string", "array"], "items": {"type": "string"})";

}  // namespace

std::string CheckName(std::string_view name) {
  const bool letters = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (letters && !name.empty() && name.size() <= kLongestRunName && name[0] != '-') return "";
  return fmt::format(
      "expected 1 to {} of a-z, 0-9 and '-', beginning with a letter or digit, got '{}'",
      kLongestRunName, name.substr(0, 2 * kLongestRunName));
}

std::string CheckFolder(std::string_view path) {
  return path.empty() || path.size() > kLongestText ? "expected the name of a folder" : "";
}

std::string CheckSha256(std::string_view text) {
  return IsSha256Hex(text) ? "" : "expected 64 hexadecimal digits";
}

std::string CheckSource(std::string_view text) {
  if (!text.empty() && text.size() <= kLongestSource) return "";
  return fmt::format("expected 1 to {} characters that say what was measured where, got {}",
                     kLongestSource, text.size());
}

Field CodecField(std::string name, CodecSpec* target, std::string expected, bool or_auto) {
  const auto read = [=](Reader& reader, const YAML::Node& node, const std::string& path,
                        const std::string& wanted) {
    const auto text = ReadScalar(reader, node, path, wanted);
    if (!text) return;
    if (text->size() > kLongestText) {
      reader.Fail(node, fmt::format("{}: too long for a codec", path));
      return;
    }
    CodecSpec codec(*text);
    if (codec.Get().ok() || (or_auto && IsAuto(codec))) {
      *target = std::move(codec);
    } else {
      reader.Fail(node, fmt::format("{}: {}", path, Message(codec.Get().status())));
    }
  };
  return Custom(std::move(name), std::move(expected), read);
}

Field CodecOrAuto(std::string name, CodecSpec* target) {
  return CodecField(std::move(name), target, "a codec such as tah or \"fixed:bits=6\", or auto",
                    /*or_auto=*/true);
}

Value TextFiles() {
  return Bound(
      LH_AT(data.text),
      [](std::string name, std::vector<std::string>* target) {
        return OneOrList(std::move(name), "file names or globs, such as [corpus/*.txt]", target,
                         ReadGlob);
      },
      QuotedList, kTexts);
}

Value DataSets() {
  return Bound(
      LH_AT(data.sets),
      [](std::string name, std::vector<DataSource>* target) {
        return OneOrList(std::move(name),
                         "data sets, such as [corpus, { from: s3://bucket/code/, weight: 0.5 }]",
                         target, ReadSet);
      },
      SetsText, R"("type": ["string", "array"], "items": {"type": ["string", "object"]})");
}

Value Targets() {
  return Bound(
      LH_LORA(targets),
      [](std::string name, std::vector<std::string>* target) {
        return OneOrList(std::move(name),
                         "all-linear, or names of modules, such as [q_proj, v_proj]", target,
                         ReadTarget);
      },
      QuotedList, kTexts);
}

Value Program() {
  return Bound(
      LH_AT(hooks.on_checkpoint),
      [](std::string name, std::vector<std::string>* target) {
        const auto read = [=](Reader& reader, const YAML::Node& node, const std::string& path,
                              const std::string& expected) {
          const auto is_text = [](const YAML::Node& one) {
            return one.IsScalar() && one.Scalar().size() <= kLongestText &&
                   one.Scalar().find('\0') == std::string::npos;
          };
          if (!node.IsSequence() || node.size() == 0 || node.size() > kMostArguments ||
              !std::ranges::all_of(node, is_text) || node[0].Scalar().empty()) {
            reader.FailExpected(node, path, expected);
            return;
          }
          target->clear();
          for (const auto& one : node) target->push_back(one.Scalar());
        };
        return Custom(std::move(name),
                      "a list of a program and at most 99 arguments, such as [python3, "
                      "/home/me/evaluate.py]",
                      read);
      },
      QuotedList, R"("type": "array", "items": {"type": "string"})");
}

Value ChosenCodecs() {
  return Bound(
      LH_AT(links.chosen),
      [](std::string name, std::vector<std::vector<CodecPair>>* target) {
        const auto read = [=](Reader& reader, const YAML::Node& node, const std::string& path,
                              const std::string& expected) {
          if (node.IsSequence() &&
              std::ranges::all_of(node, [](const auto& one) { return one.IsSequence(); })) {
            ReadChosen(target, reader, node, path);
          } else {
            reader.FailExpected(node, path, expected);
          }
        };
        return Custom(std::move(name),
                      "a list for each replica, of { forward, backward } for each boundary "
                      "between its stages",
                      read);
      },
      ChosenText, R"("type": "array", "items": {"type": "array", "items": {"type": "object"}})");
}

Value WorkerExceptions() {
  Value value = Bound(
      LH_AT(links),
      [](std::string name, LinksSpec* links) {
        const auto read = [=](Reader& reader, const YAML::Node& node, const std::string& path,
                              const std::string& expected) {
          if (node.IsMap()) {
            ReadExceptions(links, reader, node, path);
          } else {
            reader.FailExpected(node, path, expected);
          }
        };
        return Custom(std::move(name), "a mapping of worker names", read);
      },
      ExceptionsText, R"("type": "object", "additionalProperties": {"type": "object"})");
  value.copy = [](const RunSpec& from, RunSpec* to) { to->links.by_worker = from.links.by_worker; };
  return value;
}

Value CodecTimes() {
  return Bound(LH_REPLAY(codec_times), CodecTimesField, CodecTimesText,
               R"("type": "object", "additionalProperties": {"type": "object"})");
}

Value TopologyMap() {
  return Bound(
      LH_AT(topology),
      [](std::string name, std::optional<TopologySpec>* target) {
        Field field = Topology(target);
        field.key = std::move(name);
        return field;
      },
      TopologyText, R"("type": "object")");
}

Value Preset() {
  std::vector<std::string> names;
  for (const model::Preset& preset : model::Presets()) names.push_back(preset.name);
  Value value;
  value.schema = WordsSchema(names);
  value.field = [names](std::string name, Draft* draft) {
    return OneOf(std::move(name), &draft->preset, names);
  };
  return value;
}

// `tied: split`: both matrices begin as the published one, and are trained apart. `auto`: tied, as
// the published model is, but nobody has said so.
Value Tied() {
  const auto tied = LH_AT(model.tied);
  const auto split = LH_AT(weights.split);
  const auto unsaid = LH_AT(weights.tied_unsaid);
  Value value;
  value.schema = R"("enum": [true, false, "split", "auto"])";
  value.field = [=](const std::string& name, Draft* draft) {
    Field field = Flag(name, nullptr);
    field.expected = "true, false, split or auto";
    field.read = [=](Reader& reader, const YAML::Node& node, const std::string& path) {
      split(draft->spec) = node.IsScalar() && node.Scalar() == "split";
      unsaid(draft->spec) = node.IsScalar() && node.Scalar() == "auto";
      if (split(draft->spec) || unsaid(draft->spec)) {
        tied(draft->spec) = unsaid(draft->spec);
      } else {
        Flag(name, &tied(draft->spec)).read(reader, node, path);
      }
    };
    return field;
  };
  value.text = [=](const RunSpec& spec) -> std::string {
    if (split(spec)) return "split";
    return tied(spec) && unsaid(spec) ? "auto" : fmt::format("{}", tied(spec));
  };
  value.copy = [=](const RunSpec& from, RunSpec* to) {
    tied(*to) = tied(from);
    split(*to) = split(from);
    unsaid(*to) = unsaid(from);
  };
  return value;
}

Value CopyEvery() {
  static constexpr uint32_t kMost = 1'000'000;
  static constexpr std::string_view kBetweenHosts = "between-hosts";
  const auto make = [](std::string name, RecoverySpec* recovery) {
    const auto read = [recovery](Reader& reader, const YAML::Node& node, const std::string& path,
                                 const std::string& expected) {
      const std::string word = node.IsScalar() ? node.Scalar() : "";
      recovery->every_between_hosts = word == kBetweenHosts;
      if (recovery->every_between_hosts) {
        recovery->every = 0;
      } else if (word == "auto" || word.find_first_not_of("0123456789") == std::string::npos) {
        WholeOrAuto("", &recovery->every, 0, kMost).read(reader, node, path);
      } else {
        reader.FailExpected(node, path, expected);
      }
    };
    return Custom(std::move(name),
                  fmt::format("a whole number from 0 to {}, auto or {}", kMost, kBetweenHosts),
                  read);
  };
  const auto text = [](const RecoverySpec& recovery) -> std::string {
    if (!recovery.every) return "auto";
    if (*recovery.every == 0 && recovery.every_between_hosts) return std::string(kBetweenHosts);
    return fmt::format("{}", *recovery.every);
  };
  Value value = Bound(LH_AT(recovery), make, text,
                      R"("anyOf": [{"type": "integer", "minimum": 0, "maximum": 1000000}, )"
                      R"({"enum": ["auto", "between-hosts"]}])");
  value.copy = [](const RunSpec& from, RunSpec* to) {
    to->recovery.every = from.recovery.every;
    to->recovery.every_between_hosts = from.recovery.every_between_hosts;
  };
  return value;
}

Value Betas() {
  static constexpr RealRange kRange{.least = 0, .most = 1, .below_most = true};
  const auto make = [](std::string name, OptimizerSpec* optimizer) {
    const auto read = [optimizer](Reader& reader, const YAML::Node& node, const std::string& path,
                                  const std::string& expected) {
      if (!node.IsSequence() || node.size() != 2) {
        reader.FailExpected(node, path, expected);
        return;
      }
      const auto beta1 = ReadReal(reader, node[0], path, kRange);
      const auto beta2 = ReadReal(reader, node[1], path, kRange);
      if (!beta1 || !beta2) return;
      optimizer->beta1 = *beta1;
      optimizer->beta2 = *beta2;
    };
    return Custom(std::move(name), "two numbers, such as [0.9, 0.95]", read);
  };
  Value value = Bound(
      LH_AT(train.optimizer), make,
      [](const OptimizerSpec& optimizer) {
        return fmt::format("[{}, {}]", optimizer.beta1, optimizer.beta2);
      },
      fmt::format(R"("type": "array", "items": {{{}}}, "minItems": 2, "maxItems": 2)",
                  RealSchema(kRange)));
  value.copy = [](const RunSpec& from, RunSpec* to) {
    to->train.optimizer.beta1 = from.train.optimizer.beta1;
    to->train.optimizer.beta2 = from.train.optimizer.beta2;
  };
  return value;
}

// A section, or the name of a pair of codecs.
Value LinksSection() {
  std::vector<std::string> names;
  for (const LinkPair& pair : kLinkPairs) names.emplace_back(pair.name);
  Value value;
  value.schema = fmt::format(R"("enum": ["{}"])", fmt::join(names, R"(", ")"));
  value.section = [expected = fmt::format("'{}'", fmt::join(names, "', '"))](Field* section,
                                                                             Draft* draft) {
    section->read = [draft, expected, read = section->read](Reader& reader, const YAML::Node& node,
                                                            const std::string& path) {
      if (!node.IsScalar()) return read(reader, node, path);
      const auto pair = std::ranges::find(kLinkPairs, node.Scalar(), &LinkPair::name);
      if (pair != kLinkPairs.end()) {
        draft->spec.links.codecs = {CodecSpec(pair->forward), CodecSpec(pair->backward)};
        return;
      }
      reader.FailExpected(node, path,
                          expected +
                              " or a mapping with forward, backward, error, cache_limit, measure, "
                              "encrypt, workers");
    };
  };
  return value;
}

}  // namespace longhaul::config
