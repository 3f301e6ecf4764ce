// Every kind of event and message in every state of a run: nothing crashes, the invariants hold
// (the state checks them after every tick), and what has ended is only left by a resume. A new kind
// of event, message or state fails the tests at the end until it is in the lists here.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "base/words.h"
#include "tests/support/filled_message.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

struct Situation {
  std::string name;
  std::function<void(Coordinator&)> reach;
};

// "tiny-1" is the run under test; "a" and "b" its workers, "z" one without a part.
std::vector<Situation> Situations() {
  const auto submit = [](Coordinator& c) {
    c.Join("a");
    c.Join("b");
    c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1"));
    c.Join("z");
  };
  const auto run = [submit](Coordinator& c) {
    submit(c);
    c.ToRunning(kAb, "tiny-1");
    c.Steps(kAb, "tiny-1", 1);
    c.Shards(kAb, "tiny-1", 1);
  };
  const auto stored = [run] {
    Coordinator c;
    run(c);
    return c.Stored();
  };
  return {
      {"nothing",
       [](Coordinator& c) {
         for (auto n : {"a", "b", "z"}) c.Join(n);
       }},
      {"queued",
       [](Coordinator& c) {
         for (auto n : {"a", "b", "z"}) c.Join(n);
         c.Tick(SubmitOf(SmallSpec("tiny", 4), "tiny-1"));
       }},
      {"planning", submit},
      {"planning, half measured",
       [submit](Coordinator& c) {
         submit(c);
         c.Times("a", "tiny-1", 1);
       }},
      {"planning, links under way",
       [submit](Coordinator& c) {
         c.probes_are_answered = false;
         submit(c);
         c.ToPreparing(kAb, "tiny-1");
         c.Probed("a");
       }},
      {"planning, computed",
       [submit](Coordinator& c) {
         c.plans_are_computed = false;
         submit(c);
         c.ToPreparing(kAb, "tiny-1");
       }},
      {"preparing",
       [submit](Coordinator& c) {
         submit(c);
         c.ToPreparing(kAb, "tiny-1");
       }},
      {"preparing, half ready",
       [submit](Coordinator& c) {
         submit(c);
         c.ToPreparing(kAb, "tiny-1");
         c.Ready("b", "tiny-1");
       }},
      {"running", run},
      {"running, other depths computed",
       [](Coordinator& c) {
         c.retune_with = [](const RunSpec&, const Plan&, const Seen&) {
           return StatusOr<std::optional<Plan>>(std::nullopt);
         };
         RunSpec spec = SmallSpec("tiny", 2);
         spec.train.steps = 100;
         c.Join("a");
         c.Join("b");
         c.Tick(SubmitOf(spec, "tiny-1"));
         c.Join("z");
         c.ToRunning(kAb, "tiny-1");
         c.plans_are_computed = false;
         for (uint64_t step = 1; step <= 20; ++step) {
           c.Steps(kAb, "tiny-1", step);
           c.Advance(absl::Milliseconds(600));
         }
       }},
      {"running, stop asked",
       [run](Coordinator& c) {
         run(c);
         c.Tick(event::StopAsked{RequestId(2), "tiny-1", false});
       }},
      {"running, peer lost",
       [run](Coordinator& c) {
         run(c);
         c.Error("a", "tiny-1", "b is gone", 0);
       }},
      {"running, loss not finite",
       [run](Coordinator& c) {
         run(c);
         v1::StepReport report = c.Report(2, 1, 2);
         report.set_loss(std::nan(""));
         c.Step("b", "tiny-1", report);
       }},
      {"finishing",
       [run](Coordinator& c) {
         run(c);
         c.Finished("a", "tiny-1", 4);
       }},
      {"done",
       [run](Coordinator& c) {
         run(c);
         c.Finished("a", "tiny-1", 4);
         c.Finished("b", "tiny-1", 4);
       }},
      {"stopped",
       [run](Coordinator& c) {
         run(c);
         c.Tick(event::StopAsked{RequestId(2), "tiny-1", true});
       }},
      {"failed",
       [run](Coordinator& c) {
         run(c);
         c.Error("a", "tiny-1", "boom");
       }},
      {"restarted while running",
       [stored](Coordinator& c) {
         const auto sessions = c.sessions;
         Coordinator fresh(stored());
         std::swap(c.state, fresh.state);
         c.records = fresh.records;
         c.Join("z");
         c.sessions["a"] = SessionId(900);
         c.sessions["b"] = SessionId(901);
       }},
      {"resumed",
       [run](Coordinator& c) {
         run(c);
         c.Error("a", "tiny-1", "boom");
         c.Tick(SubmitOf(SmallSpec("tiny", 2), "unused", 3, true));
       }},
      {"recovering",
       [](Coordinator& c) {
         RunSpec spec = SmallSpec("tiny", 2);
         spec.recovery.attempts = 5;
         c.Join("a");
         c.Join("b");
         c.Tick(SubmitOf(spec, "tiny-1"));
         c.ToRunning(kAb, "tiny-1");
         c.Steps(kAb, "tiny-1", 1);
         c.Die("b", "tiny-1", {{"a", 0}});
         c.Join("z");
       }},
  };
}

using Fill = std::function<void(v1::WorkerMessage&)>;

// Every message of the oneof, empty and filled with ordinary and with impossible numbers.
std::vector<Fill> FilledBodies() {
  std::vector<Fill> bodies;
  const google::protobuf::OneofDescriptor& all =
      *v1::WorkerMessage::descriptor()->FindOneofByName("body");
  for (int i = 0; i < all.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = all.field(i);
    const auto body = [field](v1::WorkerMessage& m) {
      return m.GetReflection()->MutableMessage(&m, field);
    };
    bodies.push_back([body](v1::WorkerMessage& m) { body(m); });
    for (const testing::Filling& filling :
         {testing::Filling{.whole = 0, .real = 0, .text = ""},
          testing::Filling{.whole = 1, .real = 0.5},
          testing::Filling{.whole = ~uint64_t{0}, .real = std::numeric_limits<double>::quiet_NaN()},
          testing::Filling{.whole = uint64_t{1} << 63, .real = -1e308}}) {
      bodies.push_back(
          [body, filling](v1::WorkerMessage& m) { testing::FillAllFields(*body(m), filling); });
    }
  }
  return bodies;
}

std::vector<Fill> Bodies() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<Fill> bodies = FilledBodies();
  const std::vector<Fill> more = {
      [](v1::WorkerMessage&) {},
      [](v1::WorkerMessage& m) { *m.mutable_hello() = HelloOf("a"); },
      [](v1::WorkerMessage& m) { m.mutable_heartbeat(); },
      [](v1::WorkerMessage& m) { *m.mutable_layer_times() = SmallTimes(); },
      [nan](v1::WorkerMessage& m) { m.mutable_layer_times()->set_head_forward(nan); },
      [](v1::WorkerMessage& m) { m.mutable_link_probed(); },
      [](v1::WorkerMessage& m) { m.mutable_link_probed()->set_probe(1); },
      [nan](v1::WorkerMessage& m) {
        m.mutable_link_probed()->set_probe(1);
        m.mutable_link_probed()->set_goodput_bits_per_second(nan);
      },
      [](v1::WorkerMessage& m) { m.mutable_stage_ready(); },
      [](v1::WorkerMessage& m) { m.mutable_stage_ready()->set_start_step(~0ull); },
      [](v1::WorkerMessage& m) { m.mutable_stage_started(); },
      [](v1::WorkerMessage& m) { m.mutable_log()->set_text("text"); },
  };
  bodies.insert(bodies.end(), more.begin(), more.end());
  for (const uint64_t step :
       {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{4}, uint64_t{5}, ~uint64_t{0}}) {
    for (const uint32_t edge : {0u, 1u, ~0u}) {
      bodies.push_back([step, edge, nan](v1::WorkerMessage& m) {
        m.mutable_step()->set_step(step);
        m.mutable_step()->set_has_loss(true);
        m.mutable_step()->set_loss(nan);
        m.mutable_step()->set_seconds(-1);
        m.mutable_step()->set_first_nonfinite(true);
        m.mutable_step()->add_links()->set_edge(edge);
      });
      bodies.push_back([step, edge](v1::WorkerMessage& m) {
        m.mutable_error()->set_message("error");
        m.mutable_error()->set_step(step);
        m.mutable_error()->set_lost_edge(edge);
      });
      bodies.push_back([step, edge](v1::WorkerMessage& m) {
        m.mutable_link()->set_edge(edge);
        m.mutable_link()->set_state(step == 0 ? "suspect" : "healthy");
      });
      bodies.push_back([step, edge](v1::WorkerMessage& m) {
        m.mutable_link()->set_edge(edge);
        m.mutable_link()->set_state(step == 0 ? "lost" : "healed");
      });
    }
    bodies.push_back([step](v1::WorkerMessage& m) { m.mutable_validation()->set_step(step); });
    bodies.push_back([step](v1::WorkerMessage& m) { *m.mutable_shard() = ShardOf(step, 0); });
    bodies.push_back([step](v1::WorkerMessage& m) { m.mutable_shard()->set_step(step); });
    for (const uint64_t request : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
      bodies.push_back([step, request](v1::WorkerMessage& m) {
        m.mutable_samples()->set_step(step);
        m.mutable_samples()->set_request(request);
        m.mutable_samples()->add_samples()->set_text("text");
      });
    }
    bodies.push_back([step](v1::WorkerMessage& m) { m.mutable_finished()->set_step(step); });
    bodies.push_back([step](v1::WorkerMessage& m) {
      m.mutable_finished()->set_step(step);
      m.mutable_finished()->set_stopped(true);
    });
    bodies.push_back([](v1::WorkerMessage& m) { m.mutable_error()->set_message("error"); });
  }
  return bodies;
}

std::vector<Event> EveryEvent(const Coordinator& c) {
  std::vector<Event> events;
  for (const Fill& fill : Bodies()) {
    for (const char* worker : {"a", "b", "z"}) {
      for (const char* run : {"tiny-1", "", "other"}) {
        for (const uint64_t epoch : {uint64_t{0}, uint64_t{1}, uint64_t{2}, ~uint64_t{0}}) {
          const bool right_run = run == std::string("tiny-1");
          const bool real_epoch = epoch == 1 || epoch == 2;
          if (!right_run && epoch != 1) continue;
          // One worker is enough to send other runs, and epochs that never were.
          if (worker != std::string("a") && !(right_run && real_epoch)) continue;
          v1::WorkerMessage message;
          message.set_run_id(run);
          message.set_epoch(epoch);
          message.set_stamp(c.StampAt(run, epoch));
          fill(message);
          events.push_back(c.Said(worker, message));
        }
      }
    }
  }
  v1::WorkerMessage stray;
  stray.mutable_heartbeat();
  events.push_back(event::WorkerSaid{SessionId(12345), stray});
  for (const char* worker : {"a", "b", "z"}) {
    events.push_back(event::WorkerLeft{c.sessions.at(worker), "closed"});
    for (const char* incarnation : {"1", "2"}) {
      for (const char* run : {"", "tiny-1", "other"}) {
        for (const uint64_t epoch : {1, 2}) {
          v1::Hello hello = HelloOf(worker, incarnation);
          hello.set_run_id(run);
          hello.set_epoch(epoch);
          hello.set_stamp(c.StampAt(run, epoch));
          hello.mutable_cell()->set_stage(worker == std::string("b") ? 1 : 0);
          events.push_back(event::WorkerJoined{SessionId(1000), hello});
        }
      }
    }
  }
  events.push_back(event::WorkerJoined{SessionId(1001), {}});
  events.push_back(event::WorkerLeft{SessionId(12345), "closed"});
  for (const bool resume : {false, true}) {
    for (const char* id : {"tiny-1", "tiny-2", ""}) {
      events.push_back(SubmitOf(SmallSpec("tiny", 2), id, 60, resume));
      events.push_back(SubmitOf(SmallSpec("tiny", {}), id, 60, resume));
    }
  }
  for (const char* id : {"tiny-1", "plan-1"}) {
    events.push_back(
        event::PlanAsked{RequestId(61), SmallSpec("tiny", 1), {}, RunId(id), "secret"});
    events.push_back(event::DataPrepared{RunId(id), SmallData()});
    events.push_back(event::DataPrepared{RunId(id), DataSet()});
    events.push_back(event::DataPrepared{RunId(id), absl::InternalError("disk")});
  }
  for (const uint64_t id : {uint64_t{0}, uint64_t{1}, uint64_t{2}, ~uint64_t{0}}) {
    for (const Status& status : {absl::InternalError("a\nbug"), absl::CancelledError("stopped")}) {
      events.push_back(event::PlanComputed{ComputationId(id), status});
      events.push_back(event::RetuneComputed{ComputationId(id), status});
    }
    events.push_back(event::RetuneComputed{ComputationId(id), std::optional<Plan>()});
    if (const auto& record = c.records.find("tiny-1");
        record != c.records.end() && record->second.plan) {
      events.push_back(event::PlanComputed{ComputationId(id), *record->second.plan});
      events.push_back(event::RetuneComputed{ComputationId(id), record->second.plan});
    }
    for (const Command& command : c.commands) {  // what was really asked for
      const auto* asked = std::get_if<command::ComputePlan>(&command);
      if (asked == nullptr) continue;
      events.push_back(event::PlanComputed{ComputationId(id), MakePlan(asked->request)});
    }
  }
  for (const bool now : {false, true}) {
    for (const char* id : {"tiny-1", "tiny", "nobody", ""}) {
      events.push_back(event::StopAsked{RequestId(62), id, now});
    }
    v1::CollectGarbageRequest garbage;
    garbage.set_dry_run(now);
    events.push_back(event::GarbageAsked{RequestId(63), garbage});
  }
  v1::TakeSamples wanted;
  wanted.add_prompts()->add_ids(1);
  wanted.set_tokens(2);
  wanted.set_top_p(1);
  for (const char* id : {"tiny-1", "tiny", "nobody", ""}) {
    events.push_back(event::SamplesAsked{RequestId(65), id, wanted});
    events.push_back(event::SamplesAsked{RequestId(65), id, {}});
    events.push_back(event::RemoveAsked{RequestId(64), id});
    for (const uint32_t count : {0u, 1u, 2u, ~0u}) {
      events.push_back(event::ReplicasAsked{RequestId(66), id, count});
      events.push_back(event::TraceAsked{RequestId(67), id, count});
    }
    for (const bool verify : {false, true}) {
      events.push_back(event::CheckpointsAsked{RequestId(68), id, verify});
    }
    for (const uint64_t step : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
      events.push_back(event::CheckpointsAsked{RequestId(68), id, false, step});
    }
    events.push_back(event::HookEnded{.run = RunId(id), .step = 2, .how = "ended"});
    for (const char* problem : {"", "no such bucket"}) {
      events.push_back(event::CheckpointStored{RunId(id), 1, 2, problem});
    }
  }
  for (const uint64_t check : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    for (const size_t files : {0, 1, 2, 9}) {
      events.push_back(event::CopiesChecked{check, std::vector<std::string>(files)});
      events.push_back(event::CopiesChecked{check, std::vector<std::string>(files, "damaged"),
                                            std::vector<bool>(files, true)});
    }
  }
  for (const char digit : {'a', 'f'}) {
    events.push_back(event::CopyStored{{}, std::string(64, digit)});
    events.push_back(event::CopyStored{WorkerId("id-a"), std::string(64, digit)});
    events.push_back(event::CopyStored{WorkerId("id-nobody"), std::string(64, digit)});
  }
  events.push_back(event::CopyStored{{}, ""});
  return events;
}

// Whether a call of a user has its reply; true for events that are no calls.
bool IsAnswered(const Coordinator& c, const Event& event) {
  return std::visit(
      [&c]<class E>(const E&) {
        if constexpr (std::is_same_v<E, event::GarbageAsked>) {
          return c.LastReply<command::CollectGarbage>() != nullptr;  // it has the reply
        } else if constexpr (requires { typename E::Reply; }) {
          return c.LastReply<command::Reply<typename E::Reply>>() != nullptr;
        } else {
          return true;
        }
      },
      event);
}

class EveryEventTest : public ::testing::TestWithParam<size_t> {};

TEST_P(EveryEventTest, HoldsTheInvariants) {
  const Situation situation = Situations()[GetParam()];
  Coordinator sample;
  situation.reach(sample);
  const std::vector<Event> events = EveryEvent(sample);
  ASSERT_GT(events.size(), 500u);
  for (size_t i = 0; i < events.size(); ++i) {
    SCOPED_TRACE(fmt::format("event {} while {}", i, situation.name));
    Coordinator c;
    situation.reach(c);
    const auto before = c.views().RunOf("tiny-1");
    c.TickAll({events[i]});
    const auto after = c.views().RunOf("tiny-1");
    const auto* submitted = std::get_if<event::Submitted>(&events[i]);
    const auto* removal = c.LastReply<command::Reply<v1::RemoveRunReply>>();
    const bool removed = removal != nullptr && removal->reply.ok();
    EXPECT_TRUE(!removed || before->ended_unix_ms() != 0) << "it had not ended";
    if (before.ok() && before->ended_unix_ms() != 0 && submitted == nullptr && !removed) {
      EXPECT_EQ(after->state(), before->state());
    }
    // These are answered at once.
    if (submitted != nullptr || std::holds_alternative<event::StopAsked>(events[i])) {
      EXPECT_TRUE(IsAnswered(c, events[i]));
    }
    // The clock goes on: every wait ends.
    for (int wakes = 0; c.last.wake_at && wakes < 400; ++wakes) {
      c.now = std::max(c.now, *c.last.wake_at);
      c.Tick();
    }
    EXPECT_FALSE(c.last.wake_at.has_value());
    EXPECT_TRUE(IsAnswered(c, events[i]));
  }
}

TEST(EveryEvent, HasEveryKindOfEvent) {
  Coordinator c;
  for (const char* worker : {"a", "b", "z"}) c.Join(worker);
  std::set<size_t> seen;
  for (const Event& event : EveryEvent(c)) seen.insert(event.index());
  for (size_t kind = 0; kind < std::variant_size_v<Event>; ++kind) {
    EXPECT_TRUE(seen.contains(kind)) << "alternative " << kind << " of Event is missing";
  }
}

TEST(EveryEvent, HasEveryMessageOfAWorker) {
  std::set<int> seen;
  for (const Fill& fill : Bodies()) {
    v1::WorkerMessage message;
    fill(message);
    seen.insert(message.body_case());
  }
  const google::protobuf::OneofDescriptor& all =
      *v1::WorkerMessage::descriptor()->FindOneofByName("body");
  EXPECT_GT(all.field_count(), 15);
  for (int i = 0; i < all.field_count(); ++i) {
    EXPECT_TRUE(seen.contains(all.field(i)->number())) << all.field(i)->name();
  }
}

// Numbers from 0 that are values of RunState.
template <size_t n = 0>
constexpr size_t CountStates() {
  if constexpr (IsValueOfEnum<static_cast<RunState>(n)>()) {
    return CountStates<n + 1>();
  } else {
    return n;
  }
}

TEST(EveryEvent, SituationsHaveEveryState) {
  std::set<std::string> reached;
  for (const Situation& situation : Situations()) {
    Coordinator c;
    situation.reach(c);
    const auto run = c.views().RunOf("tiny-1");
    if (run.ok()) reached.insert(run->state());
  }
  for (size_t state = 0; state < CountStates(); ++state) {
    const std::string word(ToString(static_cast<RunState>(state)));
    EXPECT_TRUE(reached.contains(word)) << "no situation is " << word;
  }
}

INSTANTIATE_TEST_SUITE_P(AllSituations, EveryEventTest,
                         ::testing::Range(size_t{0}, Situations().size()));

}  // namespace
}  // namespace longhaul::coordinator
