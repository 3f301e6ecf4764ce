// Keys of the model, its data and its training.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "run/file/custom_values.h"
#include "run/file/keys.h"
#include "run/file/values.h"
#include "run/model/family.h"
#include "run/tokens/token_file.h"

namespace longhaul::config {
namespace {

bool HasSets(const RunSpec& spec) {
  return !spec.data.sets.empty();
}
bool HasNoSets(const RunSpec& spec) {
  return spec.data.sets.empty();
}
bool HasDataList(const RunSpec& spec) {
  return !spec.data.list_sha256.empty();
}
bool HasWeights(const RunSpec& spec) {
  return !spec.weights.from.empty();
}
bool HasDpo(const RunSpec& spec) {
  return spec.train.dpo.has_value();
}
bool HasAdapters(const RunSpec& spec) {
  return !spec.weights.adapters.empty();
}

std::vector<ModelFamily> FamilyIds() {
  std::vector<ModelFamily> ids;
  for (const model::Family* family : model::Families()) ids.push_back(family->id);
  return ids;
}

Value FamilyValue(const model::Key& key) {
  return std::visit(
      []<class Kind>(const Kind& kind) {
        const auto at = [field = kind.field](auto& spec) -> auto& {
          return spec.model.*field;
        };
        if constexpr (std::is_same_v<Kind, model::FlagKey>) {
          return Flag(at);
        } else if constexpr (std::is_same_v<Kind, model::RealKey>) {
          return Real(at, {.least = 0, .most = kind.most, .above_least = !kind.may_be_zero});
        } else if constexpr (std::is_same_v<Kind, model::RealsKey>) {
          return Reals(at, {.least = 0, .most = kind.most, .above_least = true});
        } else if constexpr (std::is_same_v<Kind, model::ScalingKey>) {
          using enum RopeScaling;
          return Choice(at, {kNone, kLinear, kLlama3, kYarn, kDynamic, kLongrope});
        } else if constexpr (std::is_same_v<Kind, model::NormsKey>) {
          return Choice(at, {Norms::kPre, Norms::kPost, Norms::kBoth});
        } else if constexpr (std::is_same_v<Kind, model::ActivationKey>) {
          return Choice(at, {Activation::kSilu, Activation::kGelu});
        } else if constexpr (std::is_same_v<Kind, model::BalanceKey>) {
          return Choice(at, {Balance::kLoss, Balance::kBias, Balance::kNone});
        } else if constexpr (std::is_same_v<Kind, model::WholeKey>) {
          return Whole(at, kind.least, kind.most);
        } else {
          return Whole(at, 1, kind.most);
        }
      },
      key.value);
}

// What the key is where the file leaves it out, for each family that has it.
std::string LeftOut(std::string_view name) {
  std::vector<std::string> texts, families;
  for (const model::Family* family : model::Families()) {
    const model::Key* const key = model::FindKey(*family, name);
    if (key == nullptr) continue;
    ModelSpec spec{.family = family->id};
    model::LeaveOut(*key, &spec);
    const auto* const whole = std::get_if<model::WholeKey>(&key->value);
    const std::string text = std::holds_alternative<model::RequiredKey>(key->value) ? "required"
                             : whole != nullptr && whole->same_as == &ModelSpec::heads
                                 ? "as heads"
                                 : model::TextOf(*key, spec);
    families.emplace_back(family->name);
    texts.push_back(text);
  }
  const bool alike = std::ranges::all_of(texts, [&](const auto& text) { return text == texts[0]; });
  std::string out;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (alike) return fmt::format("{} ({})", texts[0], fmt::join(families, ", "));
    out += fmt::format("{}{} ({})", i == 0 ? "" : ", ", texts[i], families[i]);
  }
  return out;
}

// Each key once, although several families may have it.
void AddFamilyKeys(std::vector<Key>* rows) {
  for (const model::Key& key : model::KeysOfFamilies()) {
    rows->push_back({fmt::format("model.{}", key.name),
                     FamilyValue(key),
                     kAll,
                     std::string(key.doc),
                     {.otherwise = LeftOut(key.name), .of_family = true}});
  }
}

std::vector<Key> ModelRows() {
  std::vector<Key> rows = {
      {"name",
       Text(LH_AT(name), "a name such as tiny-wan", CheckName, kQuoted),
       kNothing,
       "Name of the run, which its id begins with",
       {.required = true}},
      {"model.preset", Preset(), kAll,
       "Shape of a published model; keys beside it override what it says"},
      {"model.from",
       Text(LH_AT(weights.from), "a folder or an address with a published model", CheckFolder,
            kQuoted),
       kStage,
       "Folder or address (hf://, s3://, gs://, https://) with a published model, whose parameters "
       "training begins with",
       {.applies = HasWeights}},
      {"model.upload", Flag(LH_AT(weights.upload)), kNothing,
       "Workers that do not have the folders of model.from and train.lora.from get their files"},
      {"model.weights",
       Text(LH_AT(weights.sha256), "what the CLI fills in", CheckSha256, kPlain),
       kModel,
       "Content address of the weights; the CLI fills it in",
       {.applies = [](const RunSpec& spec) { return !spec.weights.sha256.empty(); }}},
      {"model.family", Choice(LH_AT(model.family), FamilyIds()), kAll,
       "Family of models, which decides the layers"},
      {"model.layers",
       Whole(LH_AT(model.layers), 1, model::kMostLayers),
       kAll,
       "Blocks of the model",
       {.required = true}},
      {"model.hidden",
       Whole(LH_AT(model.hidden), 1, model::kMostHidden),
       kAll,
       "Channels of the hidden state",
       {.unit = "channels", .required = true}},
      {"model.heads",
       Whole(LH_AT(model.heads), 1, model::kMostHeads),
       kAll,
       "Attention heads of a block; a divisor of hidden unless head_channels is set",
       {.required = true}},
      {"model.context",
       Whole(LH_AT(model.context), 1, model::kMostContext),
       kAll,
       "Sequence length",
       {.unit = "tokens", .required = true}},
      {"model.tied",
       Tied(),
       kAll,
       "Embedding and head are one matrix; split begins both with the published one and trains "
       "them apart; auto: as published, but a plan in which their exchange takes more than a tenth "
       "of a step is refused",
       {.otherwise = "false; with model.from auto"}},
      {"model.vocabulary", WholeOrAuto(LH_AT(model.vocabulary), 1, model::kMostVocabulary), kAll,
       "Rows of embedding and head; auto: as many as the tokenizer has tokens"},
  };
  AddFamilyKeys(&rows);
  return rows;
}

std::vector<Key> DataRows() {
  return {
      {"data.text",
       TextFiles(),
       kNothing,
       "Text files to train on; data.sets stands for it; a resumed run keeps their contents",
       {.applies = HasNoSets, .required = true}},
      {"data.sets",
       DataSets(),
       kNothing,
       "Data sets, instead of data.text: folders or addresses of folders, with their weights",
       {.applies = HasSets}},
      {"data.upload",
       Flag(LH_AT(data.upload)),
       kNothing,
       "Workers that do not have the folders of data.sets get their files",
       {.applies = HasSets}},
      {"data.memory",
       Bytes(LH_AT(data.memory_bytes)),
       kNothing,
       "Memory in which a worker keeps what it reads of data.sets",
       {.unit = "bytes", .applies = HasSets}},
      {"data.mask",
       TwoWords(LH_AT(data.mask_documents), "none", "document"),
       kTiming | kStage,
       "document: attention, positions and loss stay within documents of data.sets",
       {.applies = HasSets}},
      {"data.list",
       Text(LH_AT(data.list_sha256), "what the CLI fills in", CheckSha256, kPlain),
       kModel,
       "Content address of the list of the data sets' files; the CLI fills it in",
       {.applies = HasDataList}},
      {"data.vocabulary",
       Whole(LH_AT(data.vocabulary), 1, 1u << 30),
       kTiming | kStage,
       "Tokens that the data sets know; the CLI fills it in",
       {.applies = HasDataList}},
      {"data.masks",
       Flag(LH_AT(data.masks)),
       kTiming | kStage,
       "The loss of some tokens of the data sets does not count; the CLI fills it in",
       {.applies = HasDataList}},
      {"data.tokenizer",
       OneOf(LH_AT(data.tokenizer), Tokenizer::Names()),
       kAll,
       "Tokenizer of data.text",
       {.applies = HasNoSets}},
      {"data.seed", Whole(LH_AT(data.seed), 0, UINT64_MAX), kModel,
       "Seed of the order in which samples are read"},
      {"validation.share", Real(LH_AT(validation.share), {.least = 0, .most = 0.9}), kModel,
       "Share of the text, from its end, that validations read and no step trains on"},
      {"validation.every",
       Whole(LH_AT(validation.every), 0, kMostSteps),
       kNothing,
       "Steps between validations, one of which follows the last step; 0: none",
       {.unit = "steps"}},
      {"validation.samples",
       Whole(LH_AT(validation.samples), 1, 1u << 24),
       kNothing,
       "Sequences of a validation, the same ones each time",
       {.unit = "sequences"}},
      {"validation.clean",
       Choice(LH_AT(validation.clean),
              {CleanValidation::kAlways, CleanValidation::kEnd, CleanValidation::kNever}),
       kNothing, "Which validations are done a second time with boundaries in fp32"},
      {"validation.at_start",
       Flag(LH_AT(validation.at_start)),
       kNothing,
       "A validation comes before the first step, too",
       {.otherwise = "true with model.from, else false"}},
  };
}

Value Epochs() {
  Value value = Real([](auto& spec) -> auto& { return Begun(spec.train.epochs); },
                     {.least = 0, .most = 1e6, .above_least = true});
  value.text = [](const RunSpec& spec) {
    return spec.train.epochs ? fmt::format("{}", *spec.train.epochs) : "";
  };
  value.copy = [](const RunSpec& from, RunSpec* to) { to->train.epochs = from.train.epochs; };
  return value;
}

std::vector<Key> TrainRows() {
  return {
      {"train.steps",
       Whole(LH_AT(train.steps), 0, kMostSteps),
       kNothing,
       "Steps to train; 0, with model.from: the run only validates",
       // Printed steps that nobody has counted yet would be taken for a wish.
       {.unit = "steps",
        .otherwise = "train.epochs",
        .applies =
            [](const RunSpec& spec) { return !spec.train.epochs || spec.train.steps < kMostSteps; },
        .required = true}},
      {"train.epochs",
       Epochs(),
       kNothing,
       "Passes over the training data, of which steps are made when the run is submitted; "
       "train.steps goes before it",
       {.otherwise = "as train.steps say",
        .applies = [](const RunSpec& spec) { return spec.train.epochs.has_value(); }}},
      {"train.microbatches",
       Whole(LH_AT(train.microbatches), 1, 1u << 16),
       kStage | kModel,
       "Microbatches of a step, for each data-parallel replica; a resume with another number of "
       "replicas keeps the product",
       {.required = true}},
      {"train.microbatch_size",
       Whole(LH_AT(train.microbatch_size), 1, 1u << 16),
       kAll,
       "Sequences of a microbatch",
       {.unit = "sequences"}},
      {"train.dtype",
       Choice(LH_AT(train.dtype), {ComputeDtype::kAuto, ComputeDtype::kFp32, ComputeDtype::kBf16}),
       kAll,
       "Type of matrix products; auto: bf16 where all workers compute on GPUs, else fp32",
       {.auto_is_open = true}},
      {"train.seed", Whole(LH_AT(train.seed), 0, UINT64_MAX), kStage | kModel,
       "Seed of the parameters' first values and of rounding"},
      {"train.deterministic", Flag(LH_AT(train.deterministic)), kTiming | kStage,
       "GPUs use only algorithms that give the same bits each time, which costs some speed"},
      {"train.on_nonfinite",
       Choice(LH_AT(train.on_nonfinite), {OnNonfinite::kStop, OnNonfinite::kSkip}), kNothing,
       "What becomes of a step whose loss or gradient norm is not finite: stop fails the run, skip "
       "leaves the parameters as they are"},
      {"train.optimizer.kind",
       Choice(LH_AT(train.optimizer.kind), {OptimizerKind::kAdamW, OptimizerKind::kMuon}), kAll,
       "Optimizer; muon is for the matrices of blocks, with AdamW for all else"},
      {"train.optimizer.lr",
       Real(LH_AT(train.optimizer.lr), {.least = 0, .most = 1000, .above_least = true}), kNothing,
       "Learning rate after the warm-up"},
      {"train.optimizer.betas", Betas(), kStage, "Decay rates of AdamW's two moments"},
      {"train.optimizer.epsilon",
       Real(LH_AT(train.optimizer.epsilon), {.least = 0, .most = 1, .above_least = true}), kStage,
       "AdamW's epsilon, which is added to the root of the second moment"},
      {"train.optimizer.weight_decay",
       Real(LH_AT(train.optimizer.weight_decay), {.least = 0, .most = 1000}), kStage,
       "Decoupled weight decay, of matrices only"},
      {"train.optimizer.clip_norm",
       Real(LH_AT(train.optimizer.clip_norm), {.least = 0, .most = 1e9}), kNothing,
       "Largest global norm of gradients; 0: no clipping"},
      {"train.optimizer.momentum",
       Real(LH_AT(train.optimizer.momentum), {.least = 0, .most = 1, .below_most = true}),
       kStage,
       "Muon's momentum",
       {.applies =
            [](const RunSpec& spec) { return spec.train.optimizer.kind == OptimizerKind::kMuon; }}},
      {"train.optimizer.moments",
       Choice(LH_AT(train.optimizer.moments), {MomentDtype::kFp32, MomentDtype::kBf16}),
       kTiming | kStage,
       "Type in which the optimizer state is kept between steps; checkpoints hold fp32"},
      {"train.schedule.kind",
       Choice(LH_AT(train.schedule.kind), {LrScheduleKind::kCosine, LrScheduleKind::kConstant,
                                           LrScheduleKind::kLinear, LrScheduleKind::kWsd}),
       kNothing,
       "How the learning rate goes on after the warm-up; wsd: stable, then a decay on a line"},
      {"train.schedule.warmup",
       Whole(LH_AT(train.schedule.warmup), 0, kMostSteps),
       kNothing,
       "Steps in which the learning rate rises to lr",
       {.unit = "steps"}},
      {"train.schedule.final_ratio",
       Real(LH_AT(train.schedule.final_ratio), {.least = 0, .most = 1}), kNothing,
       "Learning rate of the last step, as a share of lr"},
      {"train.schedule.decay",
       Real(LH_AT(train.schedule.decay), {.least = 0, .most = 1, .above_least = true}),
       kNothing,
       "Share of all steps in which wsd decays",
       {.applies =
            [](const RunSpec& spec) { return spec.train.schedule.kind == LrScheduleKind::kWsd; }}},
      {"train.lora",
       OptionalSection(LH_AT(model.lora)),
       kAll,
       "Adapters over a published model are all that is trained",
       {.applies = [](const RunSpec& spec) { return spec.model.lora.has_value(); }}},
      {"train.lora.from",
       Text(LH_AT(weights.adapters), "a folder with adapters", CheckFolder, kQuoted),
       kNothing,
       "Folder with adapters in PEFT's layout, with which training begins instead of new ones",
       {.applies = HasAdapters, .is_place = true}},
      {"train.lora.rank",
       Whole(LH_LORA(rank), 1, 4096),
       kAll,
       "Rank of the adapters, often 8 or 16",
       {.otherwise = "that of train.lora.from, else required"}},
      {"train.lora.alpha",
       Real(LH_LORA(alpha), {.least = 0, .most = 1e6, .above_least = true}),
       kAll,
       "Adapters count alpha / rank times",
       {.otherwise = "that of train.lora.from, else 2 x rank"}},
      {"train.lora.targets",
       Targets(),
       kAll,
       "Modules that get adapters, by the ends of their names",
       {.otherwise = "those of train.lora.from, else the family's usual modules"}},
      {"train.lora.rslora",
       Flag(LH_LORA(rslora)),
       kAll,
       "Adapters count alpha / sqrt(rank) times",
       {.otherwise = "that of train.lora.from, else `false`"}},
      {"train.lora.dropout",
       Real(LH_LORA(dropout), {.least = 0, .most = 1, .below_most = true}),
       kAll,
       "Share of the numbers that adapters do not see in training, drawn anew for each microbatch",
       {.otherwise = "that of train.lora.from, else 0"}},
      {"train.lora.quantize_base",
       Choice(LH_LORA(quantize_base),
              {QuantizeBase::kNone, QuantizeBase::kNf4, QuantizeBase::kInt8}),
       kAll, "How the frozen matrices of blocks are stored: in 4 or 8 bits, as bitsandbytes does"},
      {"train.dpo",
       OptionalSection(LH_AT(train.dpo)),
       kAll,
       "Adapters learn which of two answers is preferred (direct preference optimization)",
       {.applies = HasDpo}},
      {"train.dpo.beta", Real(LH_DPO(beta), {.least = 0, .most = 100, .above_least = true}), kAll,
       "How strongly the loss keeps the adapters near the model: a larger value keeps them nearer"},
      {"train.dpo.label_smoothing",
       Real(LH_DPO(label_smoothing), {.least = 0, .most = 0.5, .below_most = true}), kAll,
       "Share of pairs that are taken to be labelled the wrong way round"},
  };
}

}  // namespace

std::vector<Key> TrainingKeys() {
  std::vector<Key> keys = ModelRows();
  for (const auto rows : {DataRows, TrainRows}) {
    for (Key& row : rows()) keys.push_back(std::move(row));
  }
  return keys;
}

}  // namespace longhaul::config
