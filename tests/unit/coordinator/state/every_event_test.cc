// Every kind of event and message in every state of a run: nothing crashes, the invariants hold
// (the state checks them after every tick), and what has ended is only left by a resume.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

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
  };
}

using Fill = std::function<void(v1::WorkerMessage&)>;

std::vector<Fill> Bodies() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<Fill> bodies = {
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
    events.push_back(event::HookEnded{.run = RunId(id), .step = 2, .how = "ended"});
    for (const char* problem : {"", "no such bucket"}) {
      events.push_back(event::CheckpointStored{RunId(id), 1, 2, problem});
    }
  }
  return events;
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
    // Every request is answered, at once or when the draft is done.
    if (submitted != nullptr) {
      EXPECT_NE(c.LastReply<command::Reply<v1::SubmitReply>>(), nullptr);
    }
    if (std::holds_alternative<event::StopAsked>(events[i])) {
      EXPECT_NE(c.LastReply<command::Reply<v1::StopReply>>(), nullptr);
    }
    // The clock goes on: every wait ends.
    for (int wakes = 0; c.last.wake_at && wakes < 400; ++wakes) {
      c.now = std::max(c.now, *c.last.wake_at);
      c.Tick();
    }
    EXPECT_FALSE(c.last.wake_at.has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(AllSituations, EveryEventTest,
                         ::testing::Range(size_t{0}, Situations().size()));

}  // namespace
}  // namespace longhaul::coordinator
