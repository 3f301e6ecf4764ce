// Keys of how a run is spread over workers, how it recovers, and what it replays.
#include <utility>

#include "run/file/custom_values.h"
#include "run/file/keys.h"
#include "run/file/run_spec_checks.h"
#include "run/file/values.h"

namespace longhaul::config {
namespace {

template <class At>
Value Codec(At at) {
  return Bound(
      at, CodecOrAuto, [](const CodecSpec& codec) { return Quote(ToString(codec)); },
      R"("type": "string")");
}

template <class At>
Value LayerTime(At at) {
  return Time(at, absl::ZeroDuration(), absl::Hours(1));
}

std::vector<Key> PipelineRows() {
  return {
      {"pipeline.stages", WholeOrAuto(LH_AT(pipeline.stages), 1, 4096), kNothing,
       "Pipeline stages; auto: one for each connected worker, at most one for each layer"},
      {"pipeline.placement",
       Choice(LH_AT(pipeline.placement), {PlacementKind::kAuto, PlacementKind::kNames}), kNothing,
       "Which workers a run takes: auto, those with the shortest predicted step; names, the first "
       "by name"},
      {"pipeline.schedule",
       Choice(LH_AT(pipeline.schedule), std::vector(kScheduleKinds.begin(), kScheduleKinds.end())),
       kStage, "Order in which stages compute microbatches"},
      {"pipeline.send_order",
       Choice(LH_AT(pipeline.send_order),
              {SendOrder::kAuto, SendOrder::kActivationsFirst, SendOrder::kAsReady}),
       kNothing, "When gradients may leave a stage beside activations"},
      {"pipeline.recompute",
       Choice(LH_AT(pipeline.recompute), {Recompute::kNone, Recompute::kBlocks, Recompute::kStage}),
       kTiming | kStage,
       "Activations that are computed again in backward to save memory: none, those inside "
       "blocks, or those of the whole stage"},
      {"pipeline.threads_per_stage",
       Whole(LH_AT(pipeline.threads_per_stage), 1, 1024),
       kAll,
       "CPU threads that compute a stage",
       {.unit = "threads"}},
      {"pipeline.depth", WholeOrAuto(LH_AT(pipeline.depth), 1, 1u << 16), kNothing,
       "Microbatches in flight of every stage; auto: the plan chooses for each stage"},
      {"pipeline.slices",
       WholeOrAuto(LH_AT(pipeline.slices), 1, 1024),
       kAll,
       "Sequence chunks in which a microbatch goes through the pipeline; auto: the first plan "
       "chooses",
       {.auto_is_open = true}},
      {"pipeline.replicas",
       NumberOrAuto(LH_AT(replicas.count), LH_AT(replicas.count_auto), replicas::kMostReplicas),
       kTiming | kStage,
       "Data-parallel replicas of the pipeline; auto: the first plan chooses; with local-sgd a "
       "resume keeps them"},
      {"pipeline.gradients",
       Parsed(LH_AT(replicas.gradients),
              "one of none, bf16, sdp4bit, tagc, local-sgd, with keys behind a colon",
              replicas::ParseGradients),
       kTiming | kStage, "How replicas send each other gradients; a resume keeps local-sgd"},
      {"pipeline.parameters",
       Parsed(LH_AT(replicas.parameters), "one of fp32, bf16, difference4",
              replicas::ParseParameters),
       kTiming | kStage, "How replicas send each other parameters"},
      {"group.tensor", NumberOrAuto(LH_AT(group.tensor), LH_AT(group.tensor_auto), kMostRanks),
       kTiming | kStage,
       "Ranks of tensor parallelism that share a stage; auto: the first plan chooses; with p below "
       "1 a resume keeps them"},
      {"group.expert", NumberOrAuto(LH_AT(group.expert), LH_AT(group.expert_auto), kMostRanks),
       kTiming | kStage, "Parts of each block's experts, a divisor of tensor"},
      {"group.sequence", Flag(LH_AT(group.sequence)), kTiming | kStage,
       "Sequence parallelism: between split matrices each rank has its part of the tokens"},
      {"group.p", Real(LH_AT(group.shared_channels), {.least = 0, .most = 1}), kAll,
       "Share of the hidden channels that ranks sum; the others are each rank's own"},
      {"group.collective", BothWays(), kTiming | kStage,
       "Says group.forward and group.backward at once"},
      {"group.forward", Forward(), kTiming | kStage,
       "What compresses the sums of forward: taco, 8-bit codes of a format (e4m3, e5m2, int8) with "
       "a "
       "scale for each block (32 to 512 numbers), such as taco:format=int8,block=128; zip, without "
       "loss; auto, none or zip, whichever is faster"},
      {"group.backward", Backward(), kTiming | kStage, "What compresses the sums of backward"},
      {"transport", ChoiceOrAuto(LH_AT(transport), ListeningTransports()), kNothing,
       "Transport of links between workers; auto: for each link the first of ucx, tcp and grpc "
       "that both workers have and by which one reaches the other"},
  };
}

Value MostError() {
  Value value =
      Real([](auto& spec) -> auto& { return Begun(spec.links.error); }, {.least = 0, .most = 1});
  value.text = [](const RunSpec& spec) {
    return spec.links.error ? fmt::format("{}", *spec.links.error) : "";
  };
  value.copy = [](const RunSpec& from, RunSpec* to) { to->links.error = from.links.error; };
  return value;
}

std::vector<Key> LinkRows() {
  return {
      {"links", LinksSection(), kNothing, "A word names a pair of codecs, as codecs.md lists them"},
      {"links.forward", Codec(LH_AT(links.codecs.forward)), kTiming,
       "Codec of activations; auto: the plan chooses for each link"},
      {"links.backward", Codec(LH_AT(links.codecs.backward)), kTiming,
       "Codec of gradients; auto: the plan chooses for each link"},
      {"links.cache_limit",
       Bytes(LH_AT(links.cache_limit_bytes)),
       kNothing,
       "Disk that codecs with message buffers may take on a worker",
       {.unit = "bytes"}},
      {"links.measure", Flag(LH_AT(links.measure)), kNothing,
       "Neighbours measure their links before each plan"},
      {"links.encrypt",
       Choice(LH_AT(links.encrypt),
              {EncryptKind::kAuto, EncryptKind::kRequired, EncryptKind::kOff}),
       kNothing,
       "Encryption of links; auto: where a worker of the run listens on an address that is not "
       "private"},
      {"links.error",
       MostError(),
       kTiming,
       "Largest error of codecs that the plan may choose where one is auto",
       {.otherwise = "those of the pair default",
        .applies = [](const RunSpec& spec) { return spec.links.error.has_value(); }}},
      {"links.chosen",
       ChosenCodecs(),
       kNothing,
       "Codecs that the first plan chose, for each replica and boundary; people need not write it",
       {.applies = [](const RunSpec& spec) { return !spec.links.chosen.empty(); }}},
      {"links.workers",
       WorkerExceptions(),
       kTiming,
       "Codecs and transport of single workers, by name",
       {.applies = [](const RunSpec& spec) { return !spec.links.by_worker.empty(); }}},
  };
}

std::vector<Key> RecoveryRows() {
  return {
      {"checkpoint.every",
       Whole(LH_AT(checkpoint.every), 0, kMostSteps),
       kNothing,
       "Steps between checkpoints; 0: only at the end and at a stop",
       {.unit = "steps"}},
      {"checkpoint.at_end", Flag(LH_AT(checkpoint.at_end)), kNothing,
       "A checkpoint follows the last step"},
      {"checkpoint.keep", Whole(LH_AT(checkpoint.keep), 1, 1000), kNothing,
       "Newest checkpoints that are kept"},
      {"checkpoint.keep_copy", Flag(LH_AT(checkpoint.keep_copy)), kNothing,
       "The coordinator keeps a copy of every shard"},
      {"checkpoint.to",
       Text(LH_AT(checkpoint.to), "a folder of an object store such as s3://bucket/checkpoints",
            CheckStoreFolder, kQuoted),
       kNothing,
       "Folder (s3://, gs://) to which workers copy each checkpoint, and from which another "
       "coordinator can go on",
       {.applies = [](const RunSpec& spec) { return !spec.checkpoint.to.empty(); }}},
      {"recovery.attempts", Whole(LH_AT(recovery.attempts), 0, 1000), kNothing,
       "Attempts in a row after a loss without finishing a new step; 0: the run fails at once"},
      {"recovery.every",
       CopyEvery(),
       kNothing,
       "Steps between copies of the state that go to another worker, on another machine if there "
       "is "
       "one; 0: none; auto: as often as costs little; between-hosts: auto where the run's workers "
       "are on several machines, else 0",
       {.unit = "steps"}},
      {"recovery.spares", Whole(LH_AT(recovery.spares), 0, 64), kNothing,
       "Further workers that are reserved for the run and take the place of lost ones"},
      {"recovery.replicas",
       Choice(LH_AT(recovery.replicas), {LostReplica::kExact, LostReplica::kContinue}), kNothing,
       "What replicas do about a lost worker: exact waits for another, continue goes on without"},
  };
}

bool HasHook(const RunSpec& spec) {
  return !spec.hooks.on_checkpoint.empty();
}

std::vector<Key> HookRows() {
  return {
      {"hooks.on_checkpoint",
       Program(),
       kNothing,
       "Program that the coordinator runs after each checkpoint with its export, where it was "
       "started with --allow-hooks; no shell reads the arguments",
       {.applies = HasHook}},
      {"hooks.timeout",
       Time(LH_AT(hooks.timeout), absl::Seconds(1), absl::Hours(24)),
       kNothing,
       "How long the program may run until it is killed",
       {.applies = HasHook}},
      {"hooks.merged",
       Flag(LH_AT(hooks.merged)),
       kNothing,
       "With LoRA: the program gets the whole model with the adapters added, not the adapters "
       "alone",
       {.applies = HasHook}},
  };
}

std::vector<Key> ReplayRows() {
  return {
      {"replay",
       OptionalSection(LH_AT(replay)),
       kTiming | kStage,
       "Compute is replaced by sleeping for times that were measured elsewhere, in a group by all "
       "ranks together; nothing is learned",
       {.applies = [](const RunSpec& spec) { return spec.replay.has_value(); }}},
      {"replay.source",
       Text(LH_REPLAY(source), "a text that says what was measured where", CheckSource, kQuoted),
       kTiming | kStage,
       "What was measured, and on which device",
       {.otherwise = "required"}},
      {"replay.layers.embedding_forward", LayerTime(LH_REPLAY(embedding_forward)), kTiming | kStage,
       "Forward of the embedding, of one microbatch"},
      {"replay.layers.embedding_backward", LayerTime(LH_REPLAY(embedding_backward)),
       kTiming | kStage, "Backward of the embedding"},
      {"replay.layers.block_forward",
       LayerTime(LH_REPLAY(block_forward)),
       kTiming | kStage,
       "Forward of one block",
       {.otherwise = "required"}},
      {"replay.layers.block_backward",
       LayerTime(LH_REPLAY(block_backward)),
       kTiming | kStage,
       "Backward of one block",
       {.otherwise = "required"}},
      {"replay.layers.head_forward", LayerTime(LH_REPLAY(head_forward)), kTiming | kStage,
       "Forward of norm, head and loss"},
      {"replay.layers.head_backward", LayerTime(LH_REPLAY(head_backward)), kTiming | kStage,
       "Backward of norm, head and loss"},
      {"replay.layers.optimizer", LayerTime(LH_REPLAY(optimizer)), kTiming | kStage,
       "Optimizer step of the whole model's parameters on one device"},
      {"replay.codecs", TwoWords(LH_REPLAY(real_codecs), "measured", "real"), kTiming | kStage,
       "measured: encoding and decoding sleep for codec_times; real: codecs run on noise"},
      {"replay.codec_times",
       CodecTimes(),
       kTiming | kStage,
       "Times to encode and decode a boundary tensor, for each codec",
       {.applies = [](const RunSpec& spec) { return !spec.replay->codec_times.empty(); }}},
      {"replay.memory",
       Bytes(LH_REPLAY(memory_bytes)),
       kTiming | kStage,
       "Memory of such a device, for the plan; 0: no limit",
       {.unit = "bytes"}},
      {"topology",
       TopologyMap(),
       kNothing,
       "Regions of workers and the links between them, which a local cluster emulates",
       {.applies = [](const RunSpec& spec) { return spec.topology.has_value(); }}},
      {"peer_timeout", Time(LH_AT(peer_timeout), absl::Milliseconds(100), absl::Hours(1)), kNothing,
       "Silence on a link after which a neighbour counts as gone"},
      {"session_timeout", Time(LH_AT(session_timeout), absl::Seconds(3), absl::Hours(1)), kNothing,
       "Silence at the coordinator after which a worker's session ends"},
      {"reattach_timeout", Time(LH_AT(reattach_timeout), absl::ZeroDuration(), absl::Hours(24)),
       kNothing, "How long a worker without a session trains on before it counts as gone"},
  };
}

}  // namespace

std::vector<Key> RunningKeys() {
  std::vector<Key> keys = PipelineRows();
  for (const auto rows : {LinkRows, RecoveryRows, HookRows, ReplayRows}) {
    for (Key& row : rows()) keys.push_back(std::move(row));
  }
  return keys;
}

}  // namespace longhaul::config
