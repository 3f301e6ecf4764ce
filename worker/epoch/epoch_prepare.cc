// Prepares an epoch: checks the assignment, makes or keeps the model, opens links, reads the text.
#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/words.h"
#include "worker/epoch/cell_check.h"
#include "worker/epoch/epoch_run.h"
#include "worker/epoch/laps.h"
#include "worker/epoch/numerics.h"
#include "worker/measuring/stage_options.h"

namespace longhaul::worker {
namespace {

std::string_view ForParameters(ResidentStage::Source source) {
  return WordOf(source, {"for parameters, which are as they were",
                         "for parameters, from the last snapshot", "for parameters, from files"});
}

}  // namespace

Status EpochRun::Check() {
  LH_RETURN_IF_ERROR(CheckAssignment(assignment_));
  const Cell* mine = assignment_.Find(cell_);
  if (mine == nullptr) {
    return InvalidArgument(
        "expected an assignment with {}, which this worker is to be; it has {} cells, none of them "
        "that one",
        ToString(cell_), assignment_.cells.size());
  }
  const std::vector<std::string> problems = CannotDo(assignment_, *mine, resources_.devices);
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  LH_ASSIGN_OR_RETURN(spec_, ParseRunSpec(assignment_.run_yaml, "run.yaml", {}));
  if (audit_until_) {
    spec_.samples.every = 0;
    spec_.audit.share = 0;  // its own inputs are a recording already
  }
  const bool ends_tied =
      spec_.model.TrainsTiedMatrix() && mine->roles.embedding != mine->roles.head;
  if (ends_tied == assignment_.EdgesOf(cell_, EdgeKind::kTied).empty() ||
      assignment_.data.vocabulary == 0) {
    return InvalidArgument(
        "expected an assignment with a vocabulary, and with an edge of a tied matrix at {} where "
        "the run trains one over several stages; got a vocabulary of {} and {}",
        ToString(cell_), assignment_.data.vocabulary,
        ends_tied ? "no such edge" : "one where there is no such matrix");
  }
  if (const size_t others = assignment_.EdgesOf(cell_, EdgeKind::kReplicas).size();
      others + 1 != spec_.replicas.count) {
    return InvalidArgument(
        "expected {} to have an edge to each other one of the run file's {} replicas, got {}",
        ToString(cell_), spec_.replicas.count, others);
  }
  if (mine->group != Group{spec_.group.tensor, spec_.group.expert}) {
    return InvalidArgument(
        "expected {} to have the run file's group.tensor {} and group.expert {}, got "
        "{} and {}",
        ToString(cell_), spec_.group.tensor, spec_.group.expert, mine->group.tensor,
        mine->group.expert);
  }
  LH_RETURN_IF_ERROR(ports_.CheckSecrets());
  if (spec_.pipeline.slices != assignment_.slices) {
    return InvalidArgument(
        "expected an assignment with the run file's pipeline.slices, which is {}; got one with {}",
        spec_.pipeline.SlicesNow(), assignment_.slices);
  }
  gpu_ = GpuOf(spec_, resources_.devices[mine->devices.front()].gpu);
  if (const DataSet& data = assignment_.data; data.validation_tokens > data.tokens) {
    return InvalidArgument(
        "expected an assignment whose validation is part of its {} tokens, got {} tokens",
        data.tokens, data.validation_tokens);
  }
  return absl::OkStatus();
}

// The parts overlap where they can: links open, the text arrives and shards are read while the
// model is made.
Status EpochRun::Prepare() {
  Laps laps;
  LH_RETURN_IF_ERROR(Check());
  const Cell& mine = *assignment_.Find(cell_);
  const ParametersOrigin origin = OriginOf(assignment_.start_step, ShardFilesOf(resume_files_));
  const ResidentIdentity identity{run(), mine.group,
                                  StageOptionsFor(spec_, assignment_.data.vocabulary, mine.layers,
                                                  mine.roles, mine.setting.threads, gpu_, Ranks()),
                                  spec_.replicas.count > 1,
                                  TraitsOf(spec_.pipeline.schedule).overlaps_steps};
  DropResidentUnlessFit(identity, origin);
  const bool kept = resident_ != nullptr;
  const auto source = kept ? resident_->SourceOf(origin) : ResidentStage::Source::kFiles;

  LH_ASSIGN_OR_RETURN(mixture_, inputs_.FetchMixture(spec_));
  LH_RETURN_IF_ERROR(ports_.Begin(spec_, gpu_, mixture_.get()));
  // Sets on web servers are read there by every worker, so only other sets need peers.
  if (mixture_ && !audit_until_ &&
      !std::ranges::all_of(mixture_->sources, &data::Source::at_address)) {
    MeetReaders();
  }
  const std::string& text_sha256 = assignment_.data.token_file_sha256;
  // With documents as attention masks every stage must know where they begin.
  const bool reads_text = mine.roles.embedding || mine.roles.head || spec_.data.mask_documents;
  std::optional<Beside<std::shared_ptr<WindowSource>>> text;
  if (reads_text && !(kept && resident_->TextOf(text_sha256))) {
    text.emplace(
        [this](const GivenUp& given_up) { return inputs_.FetchText(spec_, mixture_, given_up); });
  }
  std::optional<Beside<SharedSnapshot>> shards;
  if (source == ResidentStage::Source::kFiles && origin.step > 0) {
    if (kept) resident_->ForgetSnapshot();  // memory holds one
    shards.emplace(
        [this](const GivenUp& given_up) { return inputs_.ReadShards(resume_files_, given_up); });
  }
  std::optional<Beside<SharedSnapshot>> tables;
  if (!table_files_.empty()) {
    tables.emplace(
        [this](const GivenUp& given_up) { return inputs_.ReadShards(table_files_, given_up); });
  }
  laps.End("to begin");

  if (!kept) {
    LH_ASSIGN_OR_RETURN(resident_, ResidentStage::Create(identity, resources_.make_stage));
    // Frozen parameters are in no checkpoint, so with LoRA they are loaded in every case.
    const bool begins = origin.step == 0;
    if (!spec_.weights.from.empty() && (begins || spec_.model.lora)) {
      if (const Status loaded = inputs_.LoadWeights(spec_, resident_->model()); !loaded.ok()) {
        resident_.reset();
        return loaded;
      }
    }
  }
  laps.End(kept ? "for the model, which was there" : "for the model");
  SharedSnapshot read;
  if (shards) {
    LH_ASSIGN_OR_RETURN(read, shards->Take());
  }
  // Replicas that step together need more than the model holds: their part of the state comes from
  // the snapshot.
  SharedSnapshot begun = read ? read : resident_->snapshot();
  if (const Status status = resident_->BeginFrom(origin, std::move(read)); !status.ok()) {
    resident_.reset();  // maybe changed in part
    return status;
  }
  laps.End(origin.step == 0 ? "for parameters, which are as the run begins"
                            : ForParameters(source));

  if (text) {
    LH_ASSIGN_OR_RETURN(auto file, text->Take());
    resident_->KeepText(text_sha256, std::move(file));
  }
  if (reads_text) {
    const auto window_source = resident_->TextOf(text_sha256);
    LH_RETURN_IF_ERROR(inputs_.CheckText(*window_source, spec_.model.context));
    chunks_ = window_source->chunks();
    if (chunks_ && readers_) readers_->Serve(chunks_);
  }
  laps.End("more for the text");
  if (tables) {
    LH_ASSIGN_OR_RETURN(const SharedSnapshot known, tables->Take());
    LH_RETURN_IF_ERROR(ports_.RestoreTables(known->tables));
  }
  LH_RETURN_IF_ERROR(ports_.Await([this] { return Cancelled(); }));
  laps.End("more for links");
  LH_RETURN_IF_ERROR(MakeExecutor(reads_text ? resident_->TextOf(text_sha256) : nullptr,
                                  origin.step == 0 ? nullptr : begun.get()));
  LogInfo("run {}: {} is ready after {}", run().value(), ToString(cell_), laps.text());
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<ReplicaExchange>> EpochRun::MakeExchange(const StageSnapshot* begun_from) {
  if (ports_.replica_ports().empty()) return nullptr;
  const auto send = [ports = ports_.replica_ports()](uint32_t replica, Step step,
                                                     std::vector<std::byte> message) {
    for (const auto& port : ports) {
      if (port->peer().replica != replica) continue;
      port->Send(step, std::move(message));
      return;
    }
  };
  // The stage may have been made for a run file that differs in keys which each step reads anew.
  StageOptions options = resident_->identity().options;
  options.train = spec_.train;
  const auto tell = [events = events_](const Status& status) {
    events->Push(status.ok() ? PipelineEvent(MergeReady{}) : PipelineEvent(Failed{status}));
  };
  return ReplicaExchange::Create(&resident_->model(), options, spec_.replicas, cell_.replica, send,
                                 tell, begun_from);
}

Status EpochRun::MakeExecutor(std::shared_ptr<WindowSource> text, const StageSnapshot* begun_from) {
  LH_ASSIGN_OR_RETURN(auto exchange, MakeExchange(begun_from));
  const auto stages =
      std::count_if(assignment_.cells.begin(), assignment_.cells.end(),
                    [this](const Cell& cell) { return cell.id.replica == cell_.replica; });
  // The first stage of replica 0 reports samples.
  const bool samples = assignment_.Find(cell_)->roles.embedding && cell_.replica == 0;
  executor_ = std::make_unique<Executor>(ExecutorOptions{
      .spec = spec_,
      .run = run(),
      .cell = cell_,
      .stages = static_cast<uint32_t>(stages),
      .setting = assignment_.Find(cell_)->setting,
      .start_step = assignment_.start_step,
      .copy_every = assignment_.copy_every,
      .ends_after = audit_until_,
      .validation_tokens = audit_until_ ? 0 : assignment_.data.validation_tokens,
      .compresses_activations = ports_.CompressesActivations(),
      .vocabulary = assignment_.data.vocabulary,
      .sample_text = samples ? inputs_.FetchSampleText(spec_) : std::nullopt,
      .numerics = Numerics(),
      .resident = resident_.get(),
      .batches = text ? std::make_unique<Batches>(spec_, std::move(text), mixture_.get(),
                                                  cell_.replica, ReadBefore(assignment_, spec_))
                      : nullptr,
      .ports = ports_.ports(),
      .replica_ports = ports_.replica_ports(),
      .exchange = std::move(exchange),
      .events = events_,
      .recorder = ports_.recorder(),
      .codec_thread = resources_.codec_thread,
      .shards = resources_.shards,
      .trace = trace_,
      .work = work_,
      .report = [this](v1::WorkerMessage message) { Report(std::move(message)); },
      .digests = spec_.verify.digests == DigestKind::kNone
                     ? nullptr
                     : std::make_shared<const DigestSigner>(run(), epoch(), assignment_.stamp(),
                                                            cell_, resources_.sign),
      .accepted_outliers = accepted_outliers_,
      .rehearsal = resources_.rehearsal});
  const std::lock_guard lock(mutex_);
  ready_with_ = resident_->model().parameter_count();
  return absl::OkStatus();
}

uint64_t EpochRun::Numerics() const {
  // Codecs that have forgotten samples send other tensors than before, so no bits can be promised.
  if (!ports_.forgotten().empty()) return 0;
  const Cell& mine = *assignment_.Find(cell_);
  std::vector<v1::Device> devices;
  for (const uint32_t device : mine.devices) {
    devices.push_back(resources_.devices[device].description);
  }
  return NumericsOf(assignment_, mine, spec_, devices, Surroundings());
}

std::vector<DeviceName> EpochRun::Ranks() const {
  const Cell& mine = *assignment_.Find(cell_);
  std::vector<DeviceName> ranks;
  if (mine.group.tensor == 1) return ranks;
  for (const uint32_t device : mine.devices) ranks.push_back(resources_.devices[device].name());
  return ranks;
}

void EpochRun::DropResidentUnlessFit(const ResidentIdentity& wanted,
                                     const ParametersOrigin& origin) {
  if (!resident_) return;
  std::string why;
  if (resident_->identity().run != wanted.run) {
    why = "another run needs its memory";
  } else if (!resident_->identity().IsSame(wanted)) {
    why = "another cell of the run takes its place";
  } else if (origin.step == 0 &&
             resident_->SourceOf(origin) != ResidentStage::Source::kParameters) {
    why = "the run begins from scratch";
  } else {
    return;
  }
  LogInfo("run {}: the model that was kept is dropped: {}", resident_->identity().run.value(), why);
  resident_.reset();
}

void EpochRun::MeetReaders() {
  auto readers = std::make_shared<ChunkPeers>(
      ChunkPeersOptions{.transports = resources_.transports,
                        .traffic = resources_.traffic,
                        .run = run(),
                        .stamp = assignment_.stamp(),
                        .link_secret = link_secret_,
                        .sealed = assignment_.sealed,
                        .peer_timeout = spec_.peer_timeout,
                        .pairs = ChunkPairsOf(assignment_, cell_, spec_.data.mask_documents)});
  const std::lock_guard lock(mutex_);
  readers_ = std::move(readers);
}

}  // namespace longhaul::worker
