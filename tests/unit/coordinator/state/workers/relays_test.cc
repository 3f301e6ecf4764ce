// Workers that do not reach each other get tickets for a relay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/state_harness.h"
#include "transport/relay/ticket.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kSecret(relay::kSecretBytes, 's');

v1::Hello Relayed(const std::string& name) {
  v1::Hello hello = HelloOf(name);
  hello.add_endpoints()->set_transport(std::string(ToString(TransportKind::kRelay)));
  return hello;
}

class Relays : public ::testing::Test {
 protected:
  explicit Relays(std::optional<RelayOffer> own = RelayOffer{{.name = "coordinator"},
                                                             ":7071",
                                                             kSecret})
      : c({}, {.relay = std::move(own)}) {
    c.reach_is_answered = false;
  }
  // Nobody reaches anybody.
  void AnswerInVain() {
    std::vector<std::pair<std::string, v1::WorkerMessage>> answers;
    for (const Command& command : c.commands) {
      const auto* to = std::get_if<command::ToWorker>(&command);
      if (to == nullptr || !to->message.has_try_reach() || !to->message.try_reach().dial())
        continue;
      for (const auto& [name, session] : c.sessions) {
        if (session != to->session) continue;
        v1::WorkerMessage message;
        message.mutable_reach_tried()->set_check(to->message.try_reach().check());
        for (int i = 0; i < to->message.try_reach().addresses_size(); ++i) {
          message.mutable_reach_tried()->add_problems("no route");
        }
        answers.emplace_back(name, message);
      }
    }
    c.Forget();
    for (const auto& [name, message] : answers) c.Tick(c.Said(name, message));
  }
  relay::Way WayOf(const std::string& worker) const {
    const v1::Assign& assign = c.Last(worker, v1::WorkerCommand::kAssign)->assign();
    EXPECT_EQ(assign.edge_ways().at(0).ways_size(), 1);
    return *relay::ParseWay(assign.edge_ways().at(0).ways(0));
  }

  Coordinator c;
};

TEST_F(Relays, BothEndsOfAnEdgeGetATicketOfOneName) {
  c.Join(Relayed("a"));
  c.Join(Relayed("b"));
  AnswerInVain();
  c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1", 1));
  c.ToPreparing({"a", "b"}, "tiny-1");
  const Edge& edge = c.records.at("tiny-1").plan->assignment.edges[0];
  EXPECT_EQ(edge.transport, ToString(TransportKind::kRelay));
  const v1::Assign& assign = c.Last("a", v1::WorkerCommand::kAssign)->assign();
  EXPECT_TRUE(assign.assignment().sealed());
  const relay::Way of_a = WayOf("a"), of_b = WayOf("b");
  EXPECT_EQ(of_a.address, ":7071");
  EXPECT_EQ(of_a.ticket.name, of_b.ticket.name);
  // The relay knows it for its own, and so it is for no other name.
  const std::string nonce(relay::kNonceBytes, 'o');
  EXPECT_TRUE(relay::CheckAnswer(kSecret, relay::Answer(of_a.ticket, relay::Side::kDialler, nonce),
                                 nonce, 0)
                  .ok());
  // What only measured the link met under another one.
  const v1::WorkerCommand* probe = c.Last("a", v1::WorkerCommand::kProbeLink);
  ASSERT_NE(probe, nullptr);
  EXPECT_TRUE(probe->probe_link().sealed());
  EXPECT_EQ(probe->probe_link().transport(), ToString(TransportKind::kRelay));
  ASSERT_EQ(probe->probe_link().addresses_size(), 1);
  EXPECT_NE(relay::ParseWay(probe->probe_link().addresses(0))->ticket.name, of_a.ticket.name);
  ASSERT_EQ(c.views().Relays().size(), 1u);
  EXPECT_EQ(c.views().Relays()[0].edges(), 1u);
}

TEST_F(Relays, WithoutEncryptionTheyAreRefused) {
  c.Join(Relayed("a"));
  c.Join(Relayed("b"));
  AnswerInVain();
  RunSpec spec = SmallSpec("tiny", 2);
  spec.links.encrypt = EncryptKind::kOff;
  c.Tick(SubmitOf(spec, "tiny-1", 1));
  const auto* reply = c.LastReply<command::Reply<v1::SubmitReply>>();
  ASSERT_NE(reply, nullptr);
  EXPECT_THAT(std::string(Message(reply->reply.status())), HasSubstr("links.encrypt is off"));
}

TEST_F(Relays, AWorkerThatCarriesLinksIsARelayWhileItIsThere) {
  v1::Hello hello = Relayed("r");
  hello.mutable_relay()->set_address("203.0.113.7:7200");
  hello.mutable_relay()->set_secret(kSecret);
  const SessionId session = c.Join(hello);
  ASSERT_EQ(c.views().Relays().size(), 2u);
  EXPECT_EQ(c.views().Relays()[1].name(), "r");
  EXPECT_EQ(c.views().Relays()[1].address(), "203.0.113.7:7200");
  c.Tick(event::WorkerLeft{session, "gone"});
  EXPECT_EQ(c.views().Relays().size(), 1u);
}

class RelaysOfWorkers : public Relays {
 protected:
  RelaysOfWorkers() : Relays(std::nullopt) {}
  void JoinRelay(const std::string& name) {
    v1::Hello hello = Relayed(name);
    hello.mutable_relay()->set_address(name + ":7200");
    hello.mutable_relay()->set_secret(kSecret);
    c.Join(hello);
  }
  std::vector<std::string> RelayNames() const {
    std::vector<std::string> names;
    for (const Relay& relay : c.records.at("tiny-1").plan->assignment.edges[0].relays) {
      names.push_back(relay.name);
    }
    return names;
  }
};

// It has one attempt, which must not be lost with a relay that is gone for good.
TEST_F(RelaysOfWorkers, TheFirstRecoveryTakesARelayThatIsThere) {
  c.Join(Relayed("a"));
  c.Join(Relayed("b"));
  JoinRelay("x");
  AnswerInVain();
  RunSpec spec = SmallSpec("tiny", 2);
  spec.recovery.attempts = 1;
  c.Tick(SubmitOf(spec, "tiny-1", 1));
  c.ToRunning({"a", "b"}, "tiny-1");
  ASSERT_EQ(c.StateOf("tiny-1"), "running") << c.ReasonOf("tiny-1");
  EXPECT_THAT(RelayNames(), ElementsAre("x"));
  c.Leave("x");
  JoinRelay("y");
  AnswerInVain();
  c.Forget();
  c.Error("a", "tiny-1", "no sign of life", 0);
  c.Advance(absl::Seconds(1));
  c.Tick();
  EXPECT_EQ(c.StateOf("tiny-1"), "preparing") << c.ReasonOf("tiny-1");
  EXPECT_THAT(RelayNames(), ElementsAre("y"));
  EXPECT_EQ(WayOf("a").address, "y:7200");
  EXPECT_EQ(WayOf("b").address, "y:7200");
}

// ---- Whose tickets count

std::string ScopeOfTicket(const relay::Way& way) {
  return way.ticket.name.substr(0, relay::kScopeBytes);
}

class RelayScopesTest : public Relays {
 protected:
  // What the coordinator's own relay was told last.
  std::vector<std::string> Served() const {
    for (auto command = c.commands.rbegin(); command != c.commands.rend(); ++command) {
      if (const auto* serve = std::get_if<command::ServeScopes>(&*command)) return serve->scopes;
    }
    return {"nothing"};
  }
  // What the relay of a worker was told last.
  std::vector<std::string> ServedBy(const std::string& worker) const {
    const v1::WorkerCommand* last = c.Last(worker, v1::WorkerCommand::kServeScopes);
    if (last == nullptr) return {"nothing"};
    const auto& scopes = last->serve_scopes().scopes();
    return {scopes.begin(), scopes.end()};
  }
};

TEST_F(RelayScopesTest, TicketsEndWithTheirEpoch) {
  v1::Hello hello = Relayed("r");
  hello.mutable_relay()->set_address("203.0.113.7:7200");
  hello.mutable_relay()->set_secret(kSecret);
  c.Join(hello);
  EXPECT_THAT(ServedBy("r"), ElementsAre());
  EXPECT_THAT(Served(), ElementsAre());
  c.Join(Relayed("a"));
  c.Join(Relayed("b"));
  AnswerInVain();
  RunSpec spec = SmallSpec("tiny", 2);
  spec.recovery.attempts = 3;
  c.Tick(SubmitOf(spec, "tiny-1", 1));
  c.ToPreparing({"a", "b"}, "tiny-1");
  const v1::Assign& assign = c.Last("a", v1::WorkerCommand::kAssign)->assign();
  ASSERT_EQ(assign.edge_ways().at(0).ways_size(), 2);
  const std::string first = ScopeOfTicket(*relay::ParseWay(assign.edge_ways().at(0).ways(0)));
  EXPECT_THAT(Served(), ElementsAre(first));
  EXPECT_THAT(ServedBy("r"), ElementsAre(first));
  // A worker that was revoked is gone for good. What it knows is of an epoch that is over, before
  // anybody takes its place.
  c.Tick(event::WorkerLeft{c.sessions.at("b"), "it was revoked", /*for_good=*/true});
  EXPECT_EQ(c.StateOf("tiny-1"), "recovering");
  EXPECT_THAT(Served(), ElementsAre());
  EXPECT_THAT(ServedBy("r"), ElementsAre());
}

TEST_F(RelayScopesTest, TicketsEndWithTheirRun) {
  c.Join(Relayed("a"));
  c.Join(Relayed("b"));
  AnswerInVain();
  c.Tick(SubmitOf(SmallSpec("tiny", 2), "tiny-1", 1));
  c.ToRunning({"a", "b"}, "tiny-1");
  EXPECT_EQ(Served().size(), 1u);
  const std::vector<std::string> running = Served();
  // A coordinator that starts again finds the run in its store, and its links go on.
  c.commands.clear();
  c.Restart();
  c.Tick();
  EXPECT_EQ(Served(), running);
  c.Tick(event::StopAsked{.request = RequestId(9), .run = "tiny-1", .now = true});
  EXPECT_EQ(c.StateOf("tiny-1"), "stopped");
  EXPECT_THAT(Served(), ElementsAre());
}

}  // namespace
}  // namespace longhaul::coordinator
