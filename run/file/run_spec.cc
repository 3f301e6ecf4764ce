#include "run/file/run_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/yaml/yaml_reader.h"
#include "run/file/keys.h"
#include "run/file/other_names.h"
#include "run/file/run_spec_checks.h"

namespace longhaul {

GroupSpec GroupSpec::Settled(uint32_t ranks, uint32_t parts) const {
  GroupSpec settled = *this;
  if (tensor_auto) settled.tensor = ranks;
  if (expert_auto) settled.expert = parts;
  settled.tensor_auto = settled.expert_auto = false;
  return settled.tensor == 1 ? GroupSpec{.expert = settled.expert} : settled;
}

namespace {

using config::Draft;
using config::Reader;
using config::Table;

// A worker that has something of its own has the codecs of all links in directions that it leaves
// out.
void FillExceptions(LinksSpec* links) {
  for (auto& [name, exception] : links->by_worker) {
    CodecPair& pair = exception.codecs;
    if (pair.forward == CodecSpec()) pair.forward = links->codecs.forward;
    if (pair.backward == CodecSpec()) pair.backward = links->codecs.backward;
  }
}

// Reads "train.steps=20" as {train: {steps: 20}} by the same table. The value is YAML.
void ApplyOverride(Reader& reader, const std::string& text, const Table& table) {
  const std::string source = fmt::format("--set {}", text);
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    reader.Fail(config::Place{source}, "expected KEY=VALUE, such as train.steps=20");
    return;
  }
  const std::string path = text.substr(0, equals);
  StatusOr<YAML::Node> value = config::LoadYaml(text.substr(equals + 1), source);
  if (!value.ok()) {
    reader.Fail(config::Place{source},
                "the value is not valid YAML; quote what has brackets, braces or quotes");
    return;
  }
  YAML::Node node = *value;
  size_t end = path.size();
  int depth = 0;
  while (true) {
    const size_t dot = end == 0 ? std::string::npos : path.rfind('.', end - 1);
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    constexpr int kDeepest = 8;
    if (begin == end || ++depth > kDeepest) {
      reader.Fail(config::Place{source}, "expected KEY=VALUE with a key such as train.steps");
      return;
    }
    YAML::Node outer(YAML::NodeType::Map);
    outer.force_insert(path.substr(begin, end - begin), node);
    node.reset(outer);  // plain assignment would change what both refer to
    if (dot == std::string::npos) break;
    end = dot;
  }
  reader.SetSource(source, /*has_lines=*/false);
  reader.ReadMap(node, "", table);
}

}  // namespace

bool LinksSpec::HasAutoCodecs() const {
  return codecs.is_auto() || std::ranges::any_of(by_worker, [](const auto& exception) {
           return exception.second.codecs.is_auto();
         });
}

const std::vector<CodecPair>* LinksSpec::ChosenOf(uint32_t replica, size_t boundaries) const {
  if (chosen.empty()) return nullptr;
  const std::vector<CodecPair>& pairs = chosen[replica < chosen.size() ? replica : 0];
  return pairs.size() == boundaries ? &pairs : nullptr;
}

uint64_t LrScheduleSpec::DecaySteps(uint64_t steps) const {
  return static_cast<uint64_t>(std::llround(decay * static_cast<double>(steps)));
}

StatusOr<RunSpec> ParseRunSpec(std::string_view yaml, std::string_view file_name,
                               const std::vector<std::string>& overrides,
                               const FindTexts& find_texts, const FindModel& find_model,
                               const FindAdapters& find_adapters) {
  try {
    LH_ASSIGN_OR_RETURN(const YAML::Node root, config::LoadYaml(yaml, file_name));
    if (root.IsNull()) {
      return InvalidArgument(
          "{}:1:1: the file is empty; expected name, model, data, train and what else "
          "the run needs",
          file_name);
    }
    Draft draft;
    RunSpec& spec = draft.spec;
    spec.train.dtype = ComputeDtype::kAuto;
    const Table table = config::TableOf(&draft);
    Reader reader{std::string(file_name)};
    reader.SetOtherNames([](const std::string& key, const YAML::Node& value) {
      return config::OtherName(key, value.IsScalar() ? value.Scalar() : "");
    });
    reader.ReadMap(root, "", table);
    for (const std::string& text : overrides) ApplyOverride(reader, text, table);
    config::CompleteModel(draft.preset, find_model, reader, &spec);
    config::CompleteLora(find_adapters, reader, &spec);
    config::CompleteDpo(reader, &spec);
    if (!spec.data.sets.empty() && !reader.Has("data.text"))
      reader.Assume("data.text", "data.sets");
    if (spec.train.epochs && !reader.Has("train.steps")) {
      reader.Assume("train.steps", "train.epochs");
      spec.train.steps = kMostSteps;
    }
    reader.RequireAll(table);
    FillExceptions(&spec.links);
    if (spec.replay && !reader.Has("validation.every")) spec.validation.every = 0;
    if (!reader.Has("validation.at_start")) {
      spec.validation.at_start = config::ValidatesAtStartByDefault(spec);
    }
    config::CheckRunSpec(spec, reader);
    if (find_texts) config::CheckTexts(spec, find_texts, reader);
    LH_RETURN_IF_ERROR(reader.ToStatus());
    return spec;
  } catch (const std::exception& error) {
    return InvalidArgument("{}: {}", file_name, error.what());
  }
}

}  // namespace longhaul
