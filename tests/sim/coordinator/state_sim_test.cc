// Seeded random walks of the coordinator's state machine with simulated workers that crash, lose
// their sessions, and whose messages are lost, doubled and delayed; the coordinator restarts
// too. Checkers judge from outside, the state judges itself (invariants) at every tick. Then
// everything heals, and every run must come to its end.
//
// A failure prints its seed; LONGHAUL_SEED=<seed> runs that one alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "tests/sim/coordinator/checkers.h"
#include "tests/sim/coordinator/sim_worker.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator::sim {
namespace {

constexpr uint64_t kSeeds = 300;
constexpr int kChaosRounds = 500;
constexpr int kHealRounds = 2000;

StateOptions FastOptions() {
  StateOptions options;
  options.session_timeout = absl::Seconds(5);
  options.reattach_timeout = absl::Seconds(10);
  options.measure_timeout = absl::Seconds(10);
  options.ready_timeout = absl::Seconds(10);
  return options;
}

struct Rates {
  double drop = 0, twice = 0, delay = 0;  // of a message
  double crash = 0, disconnect = 0;       // of a worker, a round
  double restart = 0, request = 0;        // of the coordinator and its users, a round
  Faults faults;
};

Rates RandomRates(Random& random) {
  const auto maybe = [&random](double most) {
    if (Chance(random, 0.4)) return 0.0;
    return std::uniform_real_distribution<double>(0, most)(random);
  };
  Rates rates;
  rates.drop = maybe(0.01);
  rates.twice = maybe(0.2);
  rates.delay = maybe(0.5);
  rates.crash = maybe(0.005);
  rates.disconnect = maybe(0.005);
  rates.restart = maybe(0.01);
  rates.request = 0.03 + maybe(0.1);
  rates.faults.error = maybe(0.005);
  rates.faults.link = maybe(0.005);
  rates.faults.nonfinite = maybe(0.005);
  return rates;
}

// One direction of one session: in order, each message no earlier than its time.
template <class T>
struct Pipe {
  std::deque<std::pair<MonoTime, T>> waiting;
};

class Walk {
 public:
  explicit Walk(uint64_t seed)
      : random_(seed),
        rates_(RandomRates(random_)),
        coordinator_({}, FastOptions()),
        checkers_(&world_) {
    const size_t count = 2 + random_() % 4;
    for (size_t i = 0; i < count; ++i) {
      workers_.push_back(std::make_unique<Node>("w" + std::to_string(i + 1), &world_));
    }
  }

  void Run() {
    for (int round = 0; round < kChaosRounds && world_.violations.empty(); ++round) {
      Chaos();
      Round();
    }
    rates_ = Rates();
    int quiet = 0;
    for (int round = 0; round < kHealRounds && quiet < 100 && world_.violations.empty(); ++round) {
      Round();
      quiet = AllSettled() ? quiet + 1 : 0;
    }
    for (const std::string& violation : world_.violations) ADD_FAILURE() << violation;
    EXPECT_GE(quiet, 100) << "runs go on for ever: " << Describe();
    EXPECT_TRUE(checkers_.all_answered()) << "a request was never answered";
    if (!::testing::Test::HasFailure()) MustTrain();
    for (const std::string& violation : world_.violations) ADD_FAILURE() << violation;
  }

  // How often situations came up, by what the events say of them.
  std::map<std::string, int> Seen() const {
    std::map<std::string, int> seen;
    for (const v1::Event& event : coordinator_.events) {
      for (const char* word : {"done", "stopped", "failed", "finishing"}) {
        seen[word] += event.kind() == "state" && event.text().starts_with(word);
      }
      for (const char* part : {"came back", "restart", "lost its link", "the loss became",
                               "was lost", "dropped a message"}) {
        seen[part] += event.text().find(part) != std::string::npos;
      }
      seen["checkpoint"] += event.kind() == "checkpoint";
      seen["resumed"] += event.text().find("goes on from the checkpoint") != std::string::npos;
    }
    return seen;
  }

 private:
  struct Node {
    Node(std::string name, World* world) : worker(std::move(name), world) {}
    SimWorker worker;
    std::optional<SessionId> session;
    Pipe<v1::WorkerMessage> up;
    Pipe<v1::WorkerCommand> down;
  };

  // Once healed, a new run of (nearly) all workers trains to its end.
  void MustTrain() {
    for (const auto& [id, record] : coordinator_.records) {
      if (!HasEnded(record.state)) Ask(event::StopAsked{NewRequest(), id.c_str(), true});
    }
    Round();
    const RunSpec spec =
        SimSpec("last", static_cast<uint32_t>(std::min<size_t>(workers_.size(), 4)));
    Ask(SubmitOf(spec, "last-1", NewRequest().value()));
    for (int round = 0; round < kHealRounds; ++round) {
      Round();
      if (HasEnded(coordinator_.records.at("last-1").state)) break;
    }
    EXPECT_EQ(coordinator_.StateOf("last-1"), "done") << coordinator_.ReasonOf("last-1");
    EXPECT_EQ(coordinator_.records.at("last-1").checkpoints.back().step(), spec.train.steps);
  }

  bool AllSettled() {
    bool settled = std::all_of(workers_.begin(), workers_.end(),
                               [](const auto& node) { return node->session.has_value(); });
    for (const auto& [id, record] : coordinator_.records) {
      // A queued run may wait for workers that will never be there; nothing else may last.
      settled = settled && (HasEnded(record.state) || record.state == RunState::kQueued);
    }
    return settled && checkers_.all_answered();
  }

  std::string Describe() {
    std::string text;
    for (const v1::RunStatus& run : coordinator_.state->Runs()) {
      text += run.run_id() + " " + run.state() + " " + run.reason() + "; ";
    }
    return text;
  }

  RequestId NewRequest() { return RequestId(next_request_++); }

  template <class Event>
  void Ask(Event event) {
    checkers_.Asked(event.request);
    if constexpr (std::is_same_v<Event, event::StopAsked>) {
      events_.emplace_back(std::move(event));
    } else {
      events_.emplace_back(event);
      if (event.submit.resume()) return;  // its run's id is not the one that it brought
      to_prepare_.push_back(event.new_id);
    }
  }

  void Chaos() {
    if (Chance(random_, rates_.restart)) RestartCoordinator();
    for (auto& node : workers_) {
      if (Chance(random_, rates_.crash)) {
        Hang(*node, Chance(random_, 0.7));
        node->worker.Crash();
      } else if (Chance(random_, rates_.disconnect)) {
        Hang(*node, Chance(random_, 0.5));
      }
    }
    if (Chance(random_, rates_.request)) RandomRequest();
  }

  void RandomRequest() {
    const std::string name = "run" + std::to_string(random_() % 3);
    const auto stages = static_cast<uint32_t>(1 + random_() % (workers_.size() + 1));
    const RunSpec spec = SimSpec(name, std::min(stages, 4u));
    switch (random_() % 6) {
      case 0:
      case 1:
      case 2:
        Ask(SubmitOf(spec, name + "-" + std::to_string(next_id_++), NewRequest().value(),
                     random_() % 2 == 0));
        return;
      case 3: {
        event::PlanAsked asked{NewRequest(), spec, {}, RunId("plan-" + std::to_string(next_id_++))};
        Ask(std::move(asked));
        return;
      }
      default:
        Ask(event::StopAsked{NewRequest(), name, random_() % 2 == 0});
    }
  }

  void RestartCoordinator() {
    coordinator_.Restart();
    checkers_.Restarted();
    events_.clear();
    for (auto& node : workers_) {
      node->session.reset();
      node->up.waiting.clear();
      node->down.waiting.clear();
    }
  }

  // The session breaks. `told`: the coordinator hears of it at once; else it has to notice.
  void Hang(Node& node, bool told) {
    if (!node.session) return;
    if (told) {
      events_.emplace_back(event::WorkerLeft{*node.session, "connection reset"});
      left_.push_back(*node.session);
    }
    node.session.reset();
    node.up.waiting.clear();
    node.down.waiting.clear();
  }

  // A stream loses a message only by breaking, and then it loses what is behind it, too.
  template <class T>
  void Put(Node& node, Pipe<T>& pipe, const T& message) {
    if (!node.session) return;
    if (Chance(random_, rates_.drop)) {
      Hang(node, Chance(random_, 0.3));
      return;
    }
    MonoTime at = coordinator_.now;
    if (Chance(random_, rates_.delay)) at = at + absl::Milliseconds(random_() % 1500);
    const int copies = Chance(random_, rates_.twice) ? 2 : 1;
    for (int i = 0; i < copies; ++i) pipe.waiting.emplace_back(at, message);
  }

  template <class T, class Use>
  void Take(Pipe<T>& pipe, const Use& use) {
    while (!pipe.waiting.empty() && pipe.waiting.front().first <= coordinator_.now) {
      const T message = std::move(pipe.waiting.front().second);
      pipe.waiting.pop_front();
      use(message);
    }
  }

  void Round() {
    coordinator_.Advance(absl::Milliseconds(50 + random_() % 400));
    for (auto& node : workers_) {
      if (!node->session && Chance(random_, 0.5)) Connect(*node);
      Take(node->down, [&](const v1::WorkerCommand& command) { node->worker.Receive(command); });
      node->worker.Work(coordinator_.now, rates_.faults, random_);
      if (!node->session) continue;  // it keeps what it has to say
      for (const v1::WorkerMessage& message : std::exchange(node->worker.outbox, {})) {
        Put(*node, node->up, message);
      }
      if (!node->session) continue;
      Take(node->up, [&](const v1::WorkerMessage& message) {
        events_.emplace_back(event::WorkerSaid{*node->session, message});
      });
    }
    for (const RunId& run : std::exchange(to_prepare_, {})) {
      events_.emplace_back(event::DataPrepared{run, SmallData()});
    }
    Tick();
  }

  void Connect(Node& node) {
    node.session = SessionId(next_session_++);
    checkers_.Joined(*node.session);
    events_.emplace_back(event::WorkerJoined{*node.session, node.worker.Hello()});
  }

  void Tick() {
    const TickResult& result = coordinator_.TickAll(std::exchange(events_, {}));
    checkers_.Check(result);
    for (const SessionId session : std::exchange(left_, {})) checkers_.Left(session);
    for (const Command& command : result.commands) {
      if (const auto* to = std::get_if<command::ToWorker>(&command)) {
        for (auto& node : workers_) {
          if (node->session == to->session) Put(*node, node->down, to->message);
        }
      } else if (const auto* close = std::get_if<command::CloseSession>(&command)) {
        for (auto& node : workers_) {
          if (node->session == close->session) Hang(*node, false);
        }
      } else if (const auto* prepare = std::get_if<command::PrepareData>(&command)) {
        to_prepare_.push_back(prepare->run);
      }
    }
    coordinator_.Forget();
  }

  Random random_;
  Rates rates_;
  World world_;
  Coordinator coordinator_;
  Checkers checkers_;
  std::vector<std::unique_ptr<Node>> workers_;
  std::vector<Event> events_;  // of the next tick
  std::vector<SessionId> left_;
  std::vector<RunId> to_prepare_;
  uint64_t next_session_ = 1, next_request_ = 1;
  int next_id_ = 1;
};

TEST(StateSim, RandomWalks) {
  uint64_t first = 1, last = kSeeds;
  std::map<std::string, int> seen;
  if (const char* text = std::getenv("LONGHAUL_SEED"))
    first = last = std::strtoull(text, nullptr, 10);
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("LONGHAUL_SEED=" + std::to_string(seed));
    std::fprintf(stderr, "LONGHAUL_SEED=%llu\r", static_cast<unsigned long long>(seed));
    Walk walk(seed);
    walk.Run();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
    for (const auto& [what, count] : walk.Seen()) seen[what] += count;
  }
  if (first == last) return;
  // Walks that never meet a situation prove nothing about it.
  for (const char* what :
       {"done", "stopped", "failed", "finishing", "resumed", "checkpoint", "came back", "restart",
        "lost its link", "the loss became", "was lost", "dropped a message"}) {
    EXPECT_GT(seen[what], 0) << what;
  }
}

}  // namespace
}  // namespace longhaul::coordinator::sim
