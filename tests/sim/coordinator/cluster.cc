#include "tests/sim/coordinator/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator::sim {
namespace {

constexpr uint64_t kShort = 20, kEndless = 1'000'000, kCheckpointEvery = 4;

StateOptions Options() {
  StateOptions options;
  options.allow_hooks = true;
  options.session_timeout = absl::Seconds(10);
  // Faults come in minutes here, not in months.
  options.health = {.window = absl::Minutes(2),
                    .first_pause = absl::Seconds(5),
                    .longest_pause = absl::Seconds(20)};
  options.measure_timeout = absl::Seconds(40);
  options.ready_timeout = absl::Seconds(40);
  options.version = "1.2.3";
  return options;
}

}  // namespace

RunSpec ShortSpec(const std::string& name, uint32_t stages) {
  RunSpec spec = SmallSpec(name, stages);
  spec.train.steps = kShort;
  spec.checkpoint.every = kCheckpointEvery;
  spec.reattach_timeout = absl::Seconds(30);
  return spec;
}

RunSpec EndlessSpec(const std::string& name, uint32_t stages) {
  RunSpec spec = ShortSpec(name, stages);
  spec.train.steps = kEndless;
  spec.train.microbatches = 8;  // so that depths are a choice
  return spec;
}

bool IsEndless(const RunSpec& spec) {
  return spec.train.steps == kEndless;
}

Cluster::Cluster(const SimulationOptions& options)
    : world(options.seed, options.print),
      checkers(&world),
      store(options.real_store_folder.empty() ? MakeModelStore()
                                              : MakeRealStore(options.real_store_folder)) {
  const size_t count = options.pair ? 2 + world.random.Below(3)
                                    : 1 + world.random.Below(world.random.Chance(0.8) ? 5 : 16);
  if (options.pair) {
    pair = std::make_unique<Pair>(&world, &checkers, Options(), count);
  } else {
    coordinator = std::make_unique<SimCoordinator>(&world, store.get(), &checkers, Options());
  }
  world.frozen_until.resize(count);
  world.moves.resize(count);
  world.machines_lost.resize(count);
  world.incarnations.resize(count);
  world.has_twin.resize(count);
  away_until.resize(count);
  world.send_copy = [this](const std::string& worker, const std::string& sha256) {
    return leader().TakeCopy(worker, sha256);
  };
  const auto dial = [this](size_t worker, size_t at,
                           Connection::WorkerEnd end) -> std::shared_ptr<Connection> {
    if (away_until[worker] > world.timeline.now()) return nullptr;
    return pair ? pair->Dial(worker, at, std::move(end)) : coordinator->Accept(std::move(end));
  };
  const size_t coordinators = options.pair ? 2 : 1;
  if (pair) world.dropped = [this](const std::string& run, uint64_t step) { Dropped(run, step); };
  for (size_t i = 0; i < count; ++i) {
    workers.push_back(std::make_unique<SimWorker>(i, &world, dial, coordinators));
    twins.push_back(std::make_unique<SimWorker>(i, &world, dial, coordinators, /*twin=*/true));
  }
}

void Cluster::Dropped(const std::string& run, uint64_t step) {
  const auto record = checkers.records().find(RunId(run));
  if (record == checkers.records().end()) return;
  for (const v1::CheckpointManifest& manifest : record->second.checkpoints) {
    if (manifest.step() != step) continue;
    world.Violate("a worker deletes checkpoint {} of {}, which its run offers", step, run);
  }
}

void Cluster::Begin() {
  pair ? pair->Begin() : coordinator->Start();
  for (const auto& worker : workers) {
    world.timeline.After(world.random.Between(absl::ZeroDuration(), absl::Seconds(1)),
                         [&worker] { worker->Start(); });
  }
}

void Cluster::Ask(const std::function<Event(RequestId)>& make, SimCoordinator::Done done) {
  ++calls_open_;
  const auto answered = [this, done = std::move(done)](const Command* reply) {
    --calls_open_;
    done(reply);
  };
  pair ? pair->Ask(make, answered) : coordinator->Ask(make, answered);
}

void Cluster::Submit(const RunSpec& spec, bool resume) {
  const std::string what = resume ? "resume " + spec.name : "submit " + spec.name;
  world.timeline.Note("a user asks: {}", what);
  auto ids = std::make_shared<std::vector<std::string>>();
  submitted_.push_back(ids);
  calls.Begin(
      what,
      [this, spec, resume, ids](RequestId request, const std::string& call) {
        // Each try would make a run of its own.
        const std::string id = fmt::format("{}-{}", spec.name, ++last_id_);
        ids->push_back(id);
        event::Submitted submitted = SubmitOf(spec, id, request.value(), resume);
        submitted.submit.set_request_id(call);
        return submitted;
      },
      [](const Command& command) -> ClientCalls::Said {
        const auto& reply = std::get<command::Reply<v1::SubmitReply>>(command).reply;
        if (!reply.ok()) return {.status = reply.status()};
        return {.status = {}, .text = reply->run_id(), .repeated = reply->stored().repeated()};
      },
      [this](const Command& command) {
        checkers.ToldAccepted(*std::get<command::Reply<v1::SubmitReply>>(command).reply);
      });
}

void Cluster::CheckSubmissions() {
  for (const auto& ids : submitted_) {
    const auto runs = std::ranges::count_if(
        *ids, [this](const std::string& id) { return checkers.records().contains(RunId(id)); });
    if (runs > 1) world.Violate("one call has made {} runs: {}", runs, fmt::join(*ids, ", "));
  }
}

void Cluster::PlanOnly(const RunSpec& spec) {
  const std::string id = fmt::format("plan-{}", ++last_id_);
  Ask(
      [spec, id](RequestId request) {
        return event::PlanAsked{request, spec, {}, RunId(id), "secret of " + id};
      },
      [](const Command*) {});
}

void Cluster::Stop(const std::string& run, bool now) {
  world.timeline.Note("a user stops {}{}", run, now ? " at once" : "");
  calls.Stop(run, now);
}

void Cluster::SetReplicas(const std::string& run, uint32_t replicas) {
  world.timeline.Note("a user wants {} replicas of {}", replicas, run);
  Ask(
      [run, replicas](RequestId request) {
        return event::ReplicasAsked{request, run, replicas};
      },
      [](const Command*) {});
}

void Cluster::TakeSamples(const std::string& run) {
  world.timeline.Note("a user wants samples of {}", run);
  Ask(
      [run](RequestId request) {
        event::SamplesAsked asked{request, run, {}};
        asked.wanted.add_prompts()->add_ids(1);
        asked.wanted.set_tokens(2);
        asked.wanted.set_top_p(1);
        return asked;
      },
      [](const Command*) {});
}

void Cluster::CollectGarbage() {
  world.timeline.Note("an admin collects garbage");
  Ask([](RequestId request) { return event::GarbageAsked{request, {}}; }, [](const Command*) {});
}

int64_t Cluster::UnendedRuns() const {
  return std::count_if(checkers.records().begin(), checkers.records().end(),
                       [](const auto& entry) { return !HasEnded(entry.second.state); });
}

std::string Cluster::Describe() const {
  std::string text;
  for (const auto& [id, record] : checkers.records()) {
    if (HasEnded(record.state)) continue;
    text += fmt::format("{}@{} {} at step {} of {}; ", id.value(), record.epoch.value(),
                        ToString(record.state), record.step, record.spec.train.steps);
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    text += fmt::format("{} is {}; ", WorkerName(i), workers[i]->Describe());
  }
  if (pair) text += pair->Describe();
  return text;
}

}  // namespace longhaul::coordinator::sim
