#include "run/file/run_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/yaml/yaml_reader.h"
#include "run/file/group_fields.h"
#include "run/file/lora_fields.h"
#include "run/file/model_fields.h"
#include "run/file/replay_fields.h"
#include "run/file/replica_fields.h"
#include "run/file/run_spec_checks.h"
#include "run/file/topology_fields.h"
#include "run/tokens/token_file.h"

namespace longhaul {

GroupSpec GroupSpec::Settled(uint32_t ranks, uint32_t parts) const {
  GroupSpec settled = *this;
  if (tensor_auto) settled.tensor = ranks;
  if (expert_auto) settled.expert = parts;
  settled.tensor_auto = settled.expert_auto = false;
  return settled.tensor == 1 ? GroupSpec{.expert = settled.expert} : settled;
}

namespace {

using config::BytesField;
using config::Choice;
using config::DurationField;
using config::Field;
using config::Flag;
using config::OneOf;
using config::Reader;
using config::Real;
using config::RealRange;
using config::Required;
using config::Section;
using config::Table;
using config::Text;
using config::Whole;
using config::WholeOrAuto;

constexpr size_t kLongestName = 40;
constexpr size_t kLongestText = 4096;

std::string CheckName(std::string_view name) {
  const bool letters = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (letters && !name.empty() && name.size() <= kLongestName && name[0] != '-') return "";
  return fmt::format(
      "expected 1 to {} of a-z, 0-9 and '-', beginning with a letter or digit, got '{}'",
      kLongestName, name.substr(0, 2 * kLongestName));
}

config::TextCheck CodecText(const CodecCheck& check) {
  return [check](std::string_view codec) -> std::string {
    if (codec.size() > kLongestText) return "too long for a codec";
    if (!check) return "";
    const Status status = check(codec);
    return status.ok() ? "" : std::string(Message(status));
  };
}

Table PairTable(CodecPair* pair, const CodecCheck& check) {
  const std::string expected = "a codec such as tah or \"fixed:bits=6\", or auto";
  const CodecCheck or_auto = [check](std::string_view codec) {
    return codec == kAutoCodec || !check ? absl::OkStatus() : check(codec);
  };
  return {Text("forward", &pair->forward, expected, CodecText(or_auto)),
          Text("backward", &pair->backward, expected, CodecText(or_auto))};
}

// `text: corpus/*.txt` or a list of such.
Field TextFiles(std::vector<std::string>* target) {
  Field field;
  field.key = "text";
  field.expected = "file names or globs, such as [corpus/*.txt]";
  field.read = [target, expected = field.expected](Reader& reader, const YAML::Node& node,
                                                   const std::string& path) {
    std::vector<std::string> globs;
    const auto add = [&](const YAML::Node& item) {
      const auto text = config::ReadScalar(reader, item, path, expected);
      if (!text) return;
      if (text->empty() || text->size() > kLongestText) {
        reader.FailExpected(item, path, expected);
      } else {
        globs.push_back(*text);
      }
    };
    if (node.IsSequence() && node.size() > 0) {
      for (const auto& item : node) add(item);
    } else if (node.IsSequence()) {
      reader.Fail(node, fmt::format("{}: expected {}, got an empty list", path, expected));
    } else {
      add(node);
    }
    *target = std::move(globs);
  };
  return field;
}

// `mask: none` or `document`.
Field DocumentMask(bool* target) {
  Field field = OneOf("mask", nullptr, {"none", "document"});
  field.read = [check = field.read, target](Reader& reader, const YAML::Node& node,
                                            const std::string& path) {
    check(reader, node, path);
    *target = node.IsScalar() && node.Scalar() == "document";
  };
  return field;
}

// `sets: corpus` or a list of such and of `{ from: corpus, weight: 2 }`.
Field DataSets(std::vector<DataSource>* target) {
  Field field;
  field.key = "sets";
  field.expected = "folders with data sets, such as [corpus, { from: code, weight: 0.5 }]";
  field.read = [target, expected = field.expected](Reader& reader, const YAML::Node& node,
                                                   const std::string& path) {
    std::vector<DataSource> sources;
    const auto add = [&](const YAML::Node& item) {
      DataSource source;
      if (item.IsMap()) {
        reader.ReadMap(
            item, path,
            {Text("from", &source.from, "a folder with a data set", config::CheckFolder),
             Real("weight", &source.weight, {.least = 0, .most = 1e9, .above_least = true})});
      } else if (const auto text = config::ReadScalar(reader, item, path, expected)) {
        source.from = *text;
      }
      if (source.from.empty() || source.from.size() > kLongestText) {
        reader.FailExpected(item, path, expected);
      } else {
        sources.push_back(std::move(source));
      }
    };
    if (node.IsSequence() && node.size() > 0) {
      for (const auto& item : node) add(item);
    } else if (node.IsSequence()) {
      reader.Fail(node, fmt::format("{}: expected {}, got an empty list", path, expected));
    } else {
      add(node);
    }
    *target = std::move(sources);
  };
  return field;
}

// `recompute: blocks`. Older run files say true for stage and false for none.
Field RecomputeField(Recompute* target) {
  Field field;
  field.key = "recompute";
  field.expected = "one of none, blocks, stage";
  field.read = [target, expected = field.expected](Reader& reader, const YAML::Node& node,
                                                   const std::string& path) {
    const auto text = config::ReadScalar(reader, node, path, expected);
    if (!text) return;
    if (*text == "none" || *text == "false") {
      *target = Recompute::kNone;
    } else if (*text == "blocks") {
      *target = Recompute::kBlocks;
    } else if (*text == "stage" || *text == "true") {
      *target = Recompute::kStage;
    } else {
      reader.FailExpected(node, path, expected);
    }
  };
  return field;
}

Field Betas(OptimizerSpec* optimizer) {
  Field field;
  field.key = "betas";
  field.expected = "two numbers, such as [0.9, 0.95]";
  field.read = [optimizer, expected = field.expected](Reader& reader, const YAML::Node& node,
                                                      const std::string& path) {
    if (!node.IsSequence() || node.size() != 2) {
      reader.FailExpected(node, path, expected);
      return;
    }
    const RealRange range{.least = 0, .most = 1, .below_most = true};
    const auto beta1 = config::ReadReal(reader, node[0], path, range);
    const auto beta2 = config::ReadReal(reader, node[1], path, range);
    if (beta1 && beta2) {
      optimizer->beta1 = *beta1;
      optimizer->beta2 = *beta2;
    }
  };
  return field;
}

// Worker names are not known here; any name of sensible length is one. Directions that an exception
// leaves out stay "" until FillExceptions.
Field WorkerExceptions(LinksSpec* links, const CodecCheck& check) {
  Field field;
  field.key = "workers";
  field.expected = "a mapping of worker names";
  field.read = [links, check, expected = field.expected](Reader& reader, const YAML::Node& node,
                                                         const std::string& path) {
    Table workers;
    if (!node.IsMap()) {
      reader.FailExpected(node, path, expected);
      return;
    }
    for (const auto& entry : node) {
      const auto name = config::ReadScalar(reader, entry.first, path, "a worker's name");
      if (!name) continue;
      if (name->empty() || name->size() > kLongestText) {
        reader.FailExpected(entry.first, path, "a worker's name");
        continue;
      }
      const bool known = std::any_of(workers.begin(), workers.end(),
                                     [&](const Field& worker) { return worker.key == *name; });
      if (known) continue;  // ReadMap reports the second one
      workers.push_back(Section(*name, {}));
      workers.back().read = [links, check, name = *name](Reader& r, const YAML::Node& value,
                                                         const std::string& where) {
        const auto it = std::find_if(links->by_worker.begin(), links->by_worker.end(),
                                     [&](const auto& one) { return one.first == name; });
        LinkException exception{.codecs = {"", ""}};
        if (it != links->by_worker.end()) exception = it->second;
        TransportKind transport = TransportKind::kUcx;
        Table table = PairTable(&exception.codecs, check);
        table.push_back(Choice("transport", &transport, ListeningTransports()));
        r.ReadMap(value, where, table);
        if (value.IsMap() && value["transport"]) exception.transport = transport;
        if (it == links->by_worker.end()) {
          links->by_worker.emplace_back(name, exception);
        } else {
          it->second = exception;
        }
      };
    }
    if (std::all_of(node.begin(), node.end(),
                    [](const auto& entry) { return entry.first.IsScalar(); })) {
      reader.ReadMap(node, path, workers);
    }
  };
  return field;
}

// What a plan has chosen where codecs are auto. People need not write this key.
Field ChosenCodecs(LinksSpec* links, const CodecCheck& check) {
  Field field;
  field.key = "chosen";
  field.expected =
      "a list for each replica, of { forward, backward } for each boundary between its stages";
  field.read = [links, check, expected = field.expected](Reader& reader, const YAML::Node& node,
                                                         const std::string& path) {
    const bool has_lists = node.IsSequence() &&
                           std::all_of(node.begin(), node.end(), [](const YAML::Node& of_replica) {
                             return of_replica.IsSequence();
                           });
    if (!has_lists) {
      reader.FailExpected(node, path, expected);
      return;
    }
    links->chosen.clear();
    const std::string codec = "a codec such as tah";
    for (const auto& of_replica : node) {
      std::vector<CodecPair>& pairs = links->chosen.emplace_back();
      for (const auto& item : of_replica) {
        CodecPair& pair = pairs.emplace_back();
        reader.ReadMap(item, path,
                       {Text("forward", &pair.forward, codec, CodecText(check)),
                        Text("backward", &pair.backward, codec, CodecText(check))});
      }
    }
  };
  return field;
}

Field Links(LinksSpec* links, const CodecCheck& check) {
  Table table = PairTable(&links->codecs, check);
  table.push_back(BytesField("cache_limit", &links->cache_limit_bytes));
  table.push_back(Flag("measure", &links->measure));
  table.push_back(
      Choice("encrypt", &links->encrypt,
             std::vector{EncryptKind::kAuto, EncryptKind::kRequired, EncryptKind::kOff}));
  table.push_back(Real("error", &links->error, {.least = 0, .most = 1}));
  table.push_back(ChosenCodecs(links, check));
  table.push_back(WorkerExceptions(links, check));
  Field field = Section("links", table);
  field.read = [links, table](Reader& reader, const YAML::Node& node, const std::string& path) {
    if (node.IsScalar() && node.Scalar() == "paper") {
      links->codecs = CodecPair{"tah", "fixed:bits=6"};
    } else if (node.IsScalar()) {
      reader.FailExpected(
          node, path,
          "'paper' or a mapping with forward, backward, error, cache_limit, measure, encrypt, "
          "workers");
    } else {
      reader.ReadMap(node, path, table);
    }
  };
  return field;
}

void FillExceptions(LinksSpec* links) {
  for (auto& [name, exception] : links->by_worker) {
    CodecPair& pair = exception.codecs;
    if (pair.forward.empty()) pair.forward = links->codecs.forward;
    if (pair.backward.empty()) pair.backward = links->codecs.backward;
  }
}

Table TrainTable(TrainSpec* train, ModelSpec* model) {
  OptimizerSpec* optimizer = &train->optimizer;
  LrScheduleSpec* schedule = &train->schedule;
  return {
      Required(Whole("steps", &train->steps, uint64_t{0}, uint64_t{1'000'000'000})),
      Required(Whole("microbatches", &train->microbatches, 1, 1u << 16)),
      Whole("microbatch_size", &train->microbatch_size, 1, 1u << 16),
      Choice("dtype", &train->dtype,
             std::vector{ComputeDtype::kAuto, ComputeDtype::kFp32, ComputeDtype::kBf16}),
      Whole("seed", &train->seed, uint64_t{0}, UINT64_MAX),
      Flag("deterministic", &train->deterministic),
      Choice("on_nonfinite", &train->on_nonfinite,
             std::vector{OnNonfinite::kStop, OnNonfinite::kSkip}),
      Section("optimizer",
              {Choice("kind", &optimizer->kind,
                      std::vector{OptimizerKind::kAdamW, OptimizerKind::kMuon}),
               Real("lr", &optimizer->lr, {.least = 0, .most = 1000, .above_least = true}),
               Betas(optimizer),
               Real("epsilon", &optimizer->epsilon, {.least = 0, .most = 1, .above_least = true}),
               Real("weight_decay", &optimizer->weight_decay, {.least = 0, .most = 1000}),
               Real("clip_norm", &optimizer->clip_norm, {.least = 0, .most = 1e9}),
               Real("momentum", &optimizer->momentum, {.least = 0, .most = 1, .below_most = true}),
               Choice("moments", &optimizer->moments,
                      std::vector{MomentDtype::kFp32, MomentDtype::kBf16})}),
      Section("schedule",
              {Choice("kind", &schedule->kind,
                      std::vector{LrScheduleKind::kCosine, LrScheduleKind::kConstant,
                                  LrScheduleKind::kLinear, LrScheduleKind::kWsd}),
               Whole("warmup", &schedule->warmup, uint64_t{0}, uint64_t{1'000'000'000}),
               Real("final_ratio", &schedule->final_ratio, {.least = 0, .most = 1}),
               Real("decay", &schedule->decay, {.least = 0, .most = 1, .above_least = true})}),
      config::Lora(&model->lora)};
}

Table RunTable(RunSpec* spec, std::string* preset, const CodecCheck& check) {
  PipelineSpec* pipeline = &spec->pipeline;
  ValidationSpec* validation = &spec->validation;
  return {
      Required(Text("name", &spec->name, "a name such as tiny-wan", CheckName)),
      config::Model(&spec->model, &spec->weights, preset),
      Section("data",
              {Required(TextFiles(&spec->data.text)), DataSets(&spec->data.sets),
               Flag("upload", &spec->data.upload), BytesField("memory", &spec->data.memory_bytes),
               DocumentMask(&spec->data.mask_documents),
               Text("list", &spec->data.list_sha256, "what the CLI fills in", config::CheckSha256),
               Whole("vocabulary", &spec->data.vocabulary, 1, 1u << 30),
               Flag("masks", &spec->data.masks),
               OneOf("tokenizer", &spec->data.tokenizer, Tokenizer::Names()),
               Whole("seed", &spec->data.seed, uint64_t{0}, UINT64_MAX)}),
      Section("validation", {Real("share", &validation->share, {.least = 0, .most = 0.9}),
                             Whole("every", &validation->every, 0, 1'000'000'000),
                             Whole("samples", &validation->samples, 1, 1u << 24),
                             Choice("clean", &validation->clean,
                                    std::vector{CleanValidation::kAlways, CleanValidation::kEnd,
                                                CleanValidation::kNever}),
                             Flag("at_start", &validation->at_start)}),
      Section("train", TrainTable(&spec->train, &spec->model)),
      Section(
          "pipeline",
          {WholeOrAuto("stages", &pipeline->stages, 1, 4096),
           Choice("placement", &pipeline->placement,
                  std::vector{PlacementKind::kAuto, PlacementKind::kNames}),
           Choice("schedule", &pipeline->schedule,
                  std::vector(kScheduleKinds.begin(), kScheduleKinds.end())),
           Choice("send_order", &pipeline->send_order,
                  std::vector{SendOrder::kAuto, SendOrder::kActivationsFirst, SendOrder::kAsReady}),
           RecomputeField(&pipeline->recompute),
           Whole("threads_per_stage", &pipeline->threads_per_stage, 1, 1024),
           WholeOrAuto("depth", &pipeline->depth, 1, 1u << 16),
           WholeOrAuto("slices", &pipeline->slices, 1, 1024), config::ReplicaCount(&spec->replicas),
           config::Gradients(&spec->replicas.gradients),
           config::ReplicatedParameters(&spec->replicas.parameters)}),
      config::Group(&spec->group),
      Choice("transport", &spec->transport, ListeningTransports()),
      Links(&spec->links, check),
      Section(
          "checkpoint",
          {Whole("every", &spec->checkpoint.every, uint64_t{0}, uint64_t{1'000'000'000}),
           Flag("at_end", &spec->checkpoint.at_end), Whole("keep", &spec->checkpoint.keep, 1, 1000),
           Flag("keep_copy", &spec->checkpoint.keep_copy)}),
      Section("recovery", {Whole("attempts", &spec->recovery.attempts, 0, 1000),
                           WholeOrAuto("every", &spec->recovery.every, 0, 1'000'000),
                           Whole("spares", &spec->recovery.spares, 0, 64),
                           Choice("replicas", &spec->recovery.replicas,
                                  std::vector{LostReplica::kExact, LostReplica::kContinue})}),
      config::Replay(&spec->replay, check),
      config::Topology(&spec->topology),
      DurationField("peer_timeout", &spec->peer_timeout, absl::Milliseconds(100), absl::Hours(1)),
      DurationField("session_timeout", &spec->session_timeout, absl::Seconds(3), absl::Hours(1)),
      DurationField("reattach_timeout", &spec->reattach_timeout, absl::ZeroDuration(),
                    absl::Hours(24)),
  };
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
                               const CodecCheck& check_codec, const FindTexts& find_texts,
                               const FindModel& find_model) {
  try {
    LH_ASSIGN_OR_RETURN(const YAML::Node root, config::LoadYaml(yaml, file_name));
    if (root.IsNull()) {
      return absl::InvalidArgumentError(
          fmt::format("{}:1:1: the file is empty; expected name, model, data, train and what else "
                      "the run needs",
                      file_name));
    }
    RunSpec spec;
    spec.train.dtype = ComputeDtype::kAuto;
    std::string preset;  // of the model
    const Table table = RunTable(&spec, &preset, check_codec);
    Reader reader{std::string(file_name)};
    reader.ReadMap(root, "", table);
    for (const std::string& text : overrides) ApplyOverride(reader, text, table);
    config::CompleteModel(preset, find_model, reader, &spec);
    config::CompleteLora(reader, &spec.model);
    if (!spec.data.sets.empty() && !reader.Has("data.text"))
      reader.Assume("data.text", "data.sets");
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
    return absl::InvalidArgumentError(fmt::format("{}: {}", file_name, error.what()));
  }
}

}  // namespace longhaul
