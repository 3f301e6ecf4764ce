// Workers try each other's addresses; who cannot talk is said and not planned for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <set>

#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Reach : public ::testing::Test {
 protected:
  Reach() { c.reach_is_answered = false; }
  // What `worker` is to dial since the last Forget().
  std::vector<v1::TryReach> Dials(const std::string& worker) const {
    std::vector<v1::TryReach> dials;
    for (const Command& command : c.commands) {
      const auto* to = std::get_if<command::ToWorker>(&command);
      if (to != nullptr && to->session == c.sessions.at(worker) && to->message.has_try_reach() &&
          to->message.try_reach().dial()) {
        dials.push_back(to->message.try_reach());
      }
    }
    return dials;
  }
  // Everybody answers what was asked: reached, unless `fails` says why not.
  using Fails = std::function<std::string(const std::string& from, const v1::TryReach&)>;
  void Answer(const Fails& fails) {
    std::vector<std::pair<std::string, v1::TryReach>> asked;
    for (const auto& [name, session] : c.sessions) {
      for (const v1::TryReach& dial : Dials(name)) asked.emplace_back(name, dial);
    }
    c.Forget();
    for (const auto& [name, dial] : asked) AnswerOne(name, dial, fails(name, dial));
  }
  void AnswerOne(const std::string& from, const v1::TryReach& dial, const std::string& problem) {
    v1::WorkerMessage message;
    message.mutable_reach_tried()->set_check(dial.check());
    for (int i = 0; i < dial.addresses_size(); ++i) {
      message.mutable_reach_tried()->add_problems(problem);
    }
    c.Tick(c.Said(from, message));
  }
  // So many seconds in which all of these are alive.
  void Pass(int seconds, const std::vector<std::string>& alive) {
    for (int i = 0; i < seconds; ++i) {
      c.Advance(absl::Seconds(1));
      for (const std::string& name : alive) {
        v1::WorkerMessage message;
        message.mutable_heartbeat();
        c.Tick(c.Said(name, message));
      }
    }
  }
  static std::string Never(const std::string& /*from*/, const v1::TryReach& /*dial*/) { return ""; }
  // b is behind port mapping: by ucx it neither reaches nor is reached.
  static std::string NoUcx(const std::string& /*from*/, const v1::TryReach& dial) {
    return dial.transport() == "ucx" ? "no route to host" : "";
  }
  std::string Said() const {
    std::string all;
    for (const v1::Event& event : c.events) {
      if (event.text().find("joined") == std::string::npos) all += event.text() + "\n";
    }
    return all;
  }
  // kUnknown: no answer yet.
  Status Submit(const RunSpec& spec) {
    c.Tick(SubmitOf(spec, spec.name + "-1", ++request_));
    return Submitted();
  }
  Status Submitted() const {
    const auto* reply = c.LastReply<command::Reply<v1::SubmitReply>>();
    if (reply == nullptr || reply->request != RequestId(request_)) {
      return absl::UnknownError("no answer");
    }
    return reply->reply.status();
  }
  // Two workers have timed their layers for it.
  void Plan(const std::string& id) {
    event::PlanAsked asked;
    asked.request = RequestId(++request_);
    asked.spec = SmallSpec("tiny", 2);
    asked.new_id = RunId(id);
    asked.link_secret = "secret";
    c.Tick(std::move(asked));
    c.Data(id);
    for (const char* name : {"a", "b"}) c.Times(name, id, 1);
  }
  v1::WorkerStatus StatusOf(const std::string& name) const {
    for (const v1::WorkerStatus& worker : c.views().Workers(c.now)) {
      if (worker.name() == name) return worker;
    }
    return {};
  }

  Coordinator c;

 private:
  uint64_t request_ = 100;
};

TEST_F(Reach, EachWorkerTriesTheAddressesOfTheOthers) {
  c.Join(HelloOf("a"));
  EXPECT_THAT(Dials("a"), IsEmpty());
  c.Join(HelloOf("b"));
  for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "a")}) {
    const auto dials = Dials(from);
    ASSERT_EQ(dials.size(), 2u);
    EXPECT_EQ(dials[0].transport(), "ucx");
    EXPECT_EQ(dials[1].transport(), "grpc");
    EXPECT_EQ(dials[0].addresses(0), std::string(to) + ":1");
    EXPECT_EQ(dials[0].peer_name(), to);
    EXPECT_GT(dials[0].limit_seconds(), 0);
    // The other one is told to expect it, with the same secret.
    bool expected = false;
    for (const Command& command : c.commands) {
      const auto* told = std::get_if<command::ToWorker>(&command);
      if (told == nullptr || told->session != c.sessions[to]) continue;
      const v1::TryReach& ask = told->message.try_reach();
      if (ask.check() != dials[0].check() || ask.dial()) continue;
      expected = ask.link_secret() == dials[0].link_secret();
      // And whom it may let in.
      ASSERT_EQ(ask.dialler_addresses_size(), 1);
      EXPECT_EQ(ask.dialler_addresses(0), std::string(from) + ":1");
    }
    EXPECT_TRUE(expected);
  }
  Answer(Never);
  EXPECT_EQ(Said(), "");
  EXPECT_EQ(StatusOf("a").can_talk_to(), 1u);
  // A session that comes back asks nothing anew; another process does.
  c.Join(HelloOf("b"));
  EXPECT_THAT(Dials("b"), IsEmpty());
  c.Join(HelloOf("b", "2"));
  EXPECT_EQ(Dials("b").size(), 2u);
}

TEST_F(Reach, OfManyThoseTryWhoWillBeNeighbours) {
  for (int i = 1; i <= 20; ++i) c.Join(HelloOf(fmt::format("w{}", i)));
  c.Forget();
  c.Join(HelloOf("w10", "2"));
  std::set<std::string> peers;
  for (const v1::TryReach& dial : Dials("w10")) peers.insert(dial.peer_name());
  EXPECT_THAT(peers,
              ::testing::UnorderedElementsAre("w6", "w7", "w8", "w9", "w11", "w12", "w13", "w14"));
  c.Forget();
  c.Join(HelloOf("w1", "2"));
  peers.clear();
  for (const v1::TryReach& dial : Dials("w1")) peers.insert(dial.peer_name());
  EXPECT_THAT(peers,
              ::testing::UnorderedElementsAre("w2", "w3", "w4", "w5", "w17", "w18", "w19", "w20"));
}

TEST_F(Reach, OfManyAddressesSomeAreTriedAndSayNothingOfTheOthers) {
  v1::Hello many = HelloOf("b");
  for (int i = 2; i <= 6; ++i) {
    many.mutable_endpoints(0)->add_addresses(fmt::format("b:{}", i));
  }
  c.Join(HelloOf("a"));
  c.Join(many);
  ASSERT_EQ(Dials("a").size(), 2u);
  EXPECT_EQ(Dials("a")[0].addresses_size(), 4);
  EXPECT_EQ(Said(),
            "worker b has 6 addresses for ucx, of which others try the first 4; whether it is "
            "reached at b:5 b:6 is not known: name those first that others reach (--advertise)\n");
  Answer(NoUcx);
  EXPECT_THAT(Said(), Not(HasSubstr("cannot talk")));
  EXPECT_THAT(Said(), HasSubstr("nobody reaches worker b at b:4 (ucx)"));
  EXPECT_EQ(StatusOf("a").cannot_talk_to_size(), 0);
  EXPECT_TRUE(Submit(SmallSpec("tiny", 2)).ok());
  c.Join(many);  // the same process at the same addresses: no news
  EXPECT_EQ(Said().find("has 6 addresses"), Said().rfind("has 6 addresses"));
}

RunSpec OverUcx(const std::string& name) {
  RunSpec spec = SmallSpec(name, 2);
  spec.transport = TransportKind::kUcx;
  return spec;
}

TEST_F(Reach, APairThatCannotTalkIsSaidAndShownAndRefused) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  Answer(NoUcx);
  EXPECT_THAT(Said(), HasSubstr("workers a and b cannot talk over ucx: "));
  EXPECT_THAT(Said(), AllOf(HasSubstr("a does not reach b at b:1 (no route to host)"),
                            HasSubstr("b does not reach a at a:1 (no route to host)")));
  EXPECT_THAT(Said(), HasSubstr("nobody reaches worker b at b:1 (ucx), tried from a: no route to "
                                "host; look at --advertise"));
  EXPECT_THAT(Said(), Not(HasSubstr("grpc")));
  const v1::WorkerStatus shown = StatusOf("a");
  ASSERT_EQ(shown.cannot_talk_to_size(), 1);
  EXPECT_EQ(shown.cannot_talk_to(0).worker(), "b");
  EXPECT_EQ(shown.cannot_talk_to(0).transport(), "ucx");
  EXPECT_EQ(shown.can_talk_to(), 0u);

  const Status refused = Submit(OverUcx("tiny"));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(refused)),
              AllOf(HasSubstr("workers a and b are neighbours, and cannot talk over ucx: a does "
                              "not reach b at b:1 (no route to host); b does not reach a"),
                    HasSubstr("against grpc between them: set `transport: grpc`")));
  // Without `transport`, the run takes grpc, over which the two reach each other.
  ASSERT_TRUE(Submit(SmallSpec("other", 2)).ok());
}

TEST_F(Reach, WhoReachesTheOtherDials) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  // a is behind something that lets nobody in; so it dials, though it is the upper one.
  Answer(
      [](const std::string& from, const v1::TryReach&) { return from == "b" ? "no answer" : ""; });
  EXPECT_THAT(Said(), HasSubstr("nobody reaches worker a at a:1"));
  EXPECT_THAT(Said(), Not(HasSubstr("cannot talk")));
  ASSERT_TRUE(Submit(SmallSpec("tiny", 2)).ok());
  c.ToPreparing({"a", "b"}, "tiny-1");
  EXPECT_FALSE(c.records.at("tiny-1").plan->assignment.edges[0].to_dials);
  const v1::WorkerCommand* probe = c.Last("a", v1::WorkerCommand::kProbeLink);
  ASSERT_NE(probe, nullptr);
  EXPECT_TRUE(probe->probe_link().dial());
}

TEST_F(Reach, APairThatCouldNotTalkIsTriedAgain) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  Answer(NoUcx);
  for (int i = 0; i < 40 && Dials("a").empty(); ++i) Pass(1, {"a", "b"});
  ASSERT_EQ(Dials("a").size(), 1u);
  EXPECT_EQ(Dials("a")[0].transport(), "ucx");
  Answer(Never);
  EXPECT_THAT(Said(), HasSubstr("workers a and b can talk over ucx now"));
  EXPECT_EQ(StatusOf("a").cannot_talk_to_size(), 0);
  EXPECT_TRUE(Submit(SmallSpec("tiny", 2)).ok());
}

TEST_F(Reach, AnswersThatNobodyAskedForCountForNothing) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  const auto dials = Dials("a");
  const auto say = [&](const std::string& who, uint64_t check, int problems) {
    v1::WorkerMessage message;
    message.mutable_reach_tried()->set_check(check);
    for (int i = 0; i < problems; ++i) message.mutable_reach_tried()->add_problems("broken");
    c.Tick(c.Said(who, message));
  };
  say("b", dials[0].check(), 1);  // who was dialled
  say("a", dials[0].check(), 3);  // of more addresses than there are
  say("a", 12345, 1);
  EXPECT_EQ(Said(), "");
  Pass(10, {"a", "b"});
  EXPECT_TRUE(Submit(SmallSpec("tiny", 2)).ok());
}

TEST_F(Reach, WhatWasNotAnsweredIsUnknown) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  Pass(60, {"a", "b"});
  EXPECT_EQ(Said(), "");
  EXPECT_EQ(StatusOf("a").can_talk_to(), 0u);
  EXPECT_TRUE(Submit(SmallSpec("tiny", 2)).ok());
}

TEST_F(Reach, APairIsTriedAgainOnceBothAreThereAgain) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  Answer(NoUcx);
  c.Tick(event::WorkerLeft{c.sessions.at("b"), "its machine stopped"});
  Pass(60, {"a"});
  EXPECT_THAT(Dials("a"), IsEmpty());
  c.Join(HelloOf("b"));  // the same process
  ASSERT_EQ(Dials("a").size(), 1u);
  EXPECT_EQ(Dials("a")[0].transport(), "ucx");
  Answer(Never);
  EXPECT_EQ(StatusOf("a").can_talk_to(), 1u);
}

TEST_F(Reach, ASubmissionWaitsForWorkersWhoTryToReachEachOther) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  EXPECT_EQ(Submit(OverUcx("tiny")).code(), absl::StatusCode::kUnknown);
  Answer(NoUcx);
  EXPECT_EQ(Submitted().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(Submitted())), HasSubstr("cannot talk over ucx"));
  EXPECT_THAT(c.views().Runs(), IsEmpty());

  // They are asked again, and now the firewall is open.
  Pass(30, {"a", "b"});
  ASSERT_FALSE(Dials("a").empty());
  EXPECT_EQ(Submit(OverUcx("tiny")).code(), absl::StatusCode::kUnknown);
  Answer(Never);
  EXPECT_TRUE(Submitted().ok()) << Submitted();
}

TEST_F(Reach, SoManySubmissionsWait) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(Submit(SmallSpec(fmt::format("r{}", i), 2)).code(), absl::StatusCode::kUnknown);
  }
  const Status one_more = Submit(SmallSpec("one-more", 2));
  EXPECT_EQ(one_more.code(), absl::StatusCode::kResourceExhausted) << one_more;
  Answer(Never);
  EXPECT_EQ(c.views().Runs().size(), 500u);
}

TEST_F(Reach, ASubmissionDoesNotWaitForThoseItDoesNotConcern) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  Answer(Never);
  c.Join(HelloOf("c"));
  EXPECT_TRUE(Submit(SmallSpec("tiny", 2)).ok());
}

TEST_F(Reach, ASubmissionDoesNotWaitForAnAnswerThatDoesNotCome) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  ASSERT_FALSE(Submit(SmallSpec("tiny", 2)).ok());
  Pass(9, {"a", "b"});
  EXPECT_EQ(Submitted().code(), absl::StatusCode::kUnknown);
  Pass(1, {"a", "b"});
  EXPECT_TRUE(Submitted().ok()) << Submitted();
}

TEST_F(Reach, AWorkerThatKeepsMovingIsNotWaitedForEver) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  ASSERT_FALSE(Submit(SmallSpec("tiny", 2)).ok());
  for (int i = 2; i < 12 && !Submitted().ok(); ++i) {
    c.Join(HelloOf("b", std::to_string(i)));  // and is tried anew
    Pass(1, {"a", "b"});
  }
  EXPECT_TRUE(Submitted().ok()) << Submitted();
}

TEST_F(Reach, ARunThatWaitedForWorkersIsNotPlannedBeforeTheyHaveTried) {
  ASSERT_TRUE(Submit(OverUcx("tiny")).ok());
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  c.ToPreparing({"a", "b"}, "tiny-1");
  EXPECT_EQ(c.StateOf("tiny-1"), "planning");
  EXPECT_EQ(c.Count("a", v1::WorkerCommand::kProbeLink), 0);
  Answer(NoUcx);
  EXPECT_EQ(c.StateOf("tiny-1"), "failed");
  EXPECT_THAT(c.ReasonOf("tiny-1"), HasSubstr("cannot talk over ucx: a does not reach b"));
}

TEST_F(Reach, APlanWaitsForWorkersWhoTryAndKnowsWhoDials) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  Plan("plan-1");
  EXPECT_EQ(c.LastReply<command::Reply<v1::PlanReply>>(), nullptr);
  Answer(
      [](const std::string& from, const v1::TryReach&) { return from == "b" ? "no answer" : ""; });
  const auto* reply = c.LastReply<command::Reply<v1::PlanReply>>();
  ASSERT_NE(reply, nullptr);
  ASSERT_TRUE(reply->reply.ok()) << reply->reply.status();
  EXPECT_FALSE(reply->reply->plan().assignment().edges(0).to_dials());
}

TEST_F(Reach, APlanDoesNotWaitForAnAnswerThatDoesNotCome) {
  c.Join(HelloOf("a"));
  c.Join(HelloOf("b"));
  Plan("plan-1");
  Pass(9, {"a", "b"});
  EXPECT_EQ(c.LastReply<command::Reply<v1::PlanReply>>(), nullptr);
  Pass(1, {"a", "b"});
  ASSERT_NE(c.LastReply<command::Reply<v1::PlanReply>>(), nullptr);
  EXPECT_TRUE(c.LastReply<command::Reply<v1::PlanReply>>()->reply.ok());
}

TEST_F(Reach, NobodyWaitsForAnAnswerThatDoesNotCome) {
  for (const char* name : {"a", "b", "c"}) c.Join(HelloOf(name));
  const auto to_b = [&](const std::string& from) {
    std::vector<v1::TryReach> dials = Dials(from);
    std::erase_if(dials, [](const v1::TryReach& dial) {
      return dial.peer_name() != "b" || dial.transport() != "ucx";
    });
    return dials;
  };
  AnswerOne("a", to_b("a").back(), "no route to host");
  // What a process saw that is gone says nothing of the one in its place.
  c.Join(HelloOf("a", "2"));
  AnswerOne("c", to_b("c").back(), "connection refused");
  EXPECT_THAT(Said(), Not(HasSubstr("nobody reaches")));  // a is asked anew
  Pass(20, {"a", "b", "c"});
  EXPECT_THAT(Said(), HasSubstr("nobody reaches worker b at b:1 (ucx), tried from c: connection "
                                "refused"));
}

// In CPU time, the least of some tries.
absl::Duration TimeToRender(const Coordinator& c) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return absl::DurationFromTimespec(time);
  };
  absl::Duration least = absl::InfiniteDuration();
  for (int i = 0; i < 20; ++i) {
    const absl::Duration before = now();
    c.views().Workers(c.now);
    least = std::min(least, now() - before);
  }
  return least;
}

// The state machine stands still meanwhile. Eight times as many would cost eight times as much
// each; caches that others fill take some of that, too.
TEST_F(Reach, WhatIsShownCostsTheSameForEveryWorkerHoweverManyThereAre) {
  constexpr int kFew = 64, kMany = 512;
  absl::Duration few;
  for (int i = 1; i <= kMany; ++i) {
    c.Join(HelloOf(fmt::format("w{}", i)));
    if (i == kFew) few = TimeToRender(c);
  }
  EXPECT_LT(TimeToRender(c) / kMany, 6 * few / kFew);
}

}  // namespace
}  // namespace longhaul::coordinator
