// Which of two coordinators leads after the leader has gone.
#include <gmock/gmock.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "coordinator/standby/leadership_record.h"
#include "longhaul/v1/standby.grpc.pb.h"
#include "proto/witness/rules.h"
#include "proto/witness/wire.h"
#include "tests/unit/coordinator/standby/follow_fixture.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

// Tells when files of a folder are deleted.
class Deletions {
 public:
  explicit Deletions(const std::string& folder) : fd_(::inotify_init1(IN_CLOEXEC)) {
    EXPECT_GE(::inotify_add_watch(fd_.get(), folder.c_str(), IN_DELETE), 0);
  }
  // Blocks until a file whose name begins so was deleted.
  void Await(const std::string& begin) const {
    while (true) {
      alignas(inotify_event) char bytes[sizeof(inotify_event) + NAME_MAX + 1];
      const ssize_t n = ::read(fd_.get(), bytes, sizeof bytes);
      ASSERT_GT(n, 0);
      for (ssize_t at = 0; at < n;) {
        inotify_event event;
        std::memcpy(&event, bytes + at, sizeof event);
        if (std::string(bytes + at + sizeof event).starts_with(begin)) return;
        at += static_cast<ssize_t>(sizeof event + event.len);
      }
    }
  }

 private:
  UniqueFd fd_;
};

TEST_F(FollowTest, WithAWitnessTheStandbyTakesOverAndTheOldOneFollows) {
  auto server = Serve(Options("first"));
  const std::string address = server->address();
  const FollowerOptions following = Following(address);
  auto follower = Follow(following);
  const auto witness = Watch(address, following.listen);
  ASSERT_TRUE(Becomes([&] { return InSync("first"); }));
  ASSERT_TRUE(Becomes([&] { return witness->record().in_sync.size() == 2; }));
  const auto ann = Join(address, "ann");
  ASSERT_TRUE(Upload(*ann, "kept").ok());
  server.reset();
  ASSERT_TRUE(Becomes([&] { return follower->elected().has_value(); }));
  ServerOptions taking = Options("standby");
  taking.elected = follower->elected();
  taking.listen = following.listen;
  taking.peer = address;
  follower.reset();
  auto second = Serve(taking);
  EXPECT_EQ(LeadsAt(second->address()).term(), 2u);
  EXPECT_EQ(Blobs("standby"), std::set<std::string>{Sha256Hex("kept")});
  EXPECT_THAT(DumpStore(Dir("standby") + "/store.db"), HasSubstr("'ann'"));

  // The old one does not know whether the other was elected, so it asks.
  EXPECT_THAT(CoordinatorServer::Start(Options("first")).status().ToString(),
              HasSubstr("may have been elected"));
  EXPECT_EQ(*CoordinatorToFollow(Dir("first"), "", false), following.listen);
  FollowerOptions back = Following(second->address(), "first");
  back.listen = address;
  auto old = Follow(back);
  ASSERT_TRUE(Becomes([&] { return InSync("standby"); }));
  ExpectSameStores("first", "standby");
  EXPECT_FALSE(old->elected().has_value());
  EXPECT_EQ(ReadLeadership(Dir("first"))->role, LeaderRole::kStandby);
}

// The witness knows at once that nobody else can have been elected.
TEST_F(FollowTest, ALeaderThatBeginsAnewIsElectedAgain) {
  auto server = Serve(Options("first"));
  const std::string address = server->address();
  const FollowerOptions following = Following(address);
  const auto follower = Follow(following);
  const auto witness = Watch(address, following.listen);
  ASSERT_TRUE(Becomes([&] { return InSync("first"); }));
  ASSERT_TRUE(Becomes([&] { return witness->record().in_sync.size() == 2; }));
  server.reset();
  FollowerOptions again = Following(following.listen, "first");
  again.listen = address;
  auto asks = Follow(again);
  ASSERT_TRUE(Becomes([&] { return asks->elected() || follower->elected(); }));
  ASSERT_TRUE(asks->elected().has_value());
  ServerOptions options = Options("first");
  options.listen = address;
  options.elected = asks->elected();
  asks.reset();
  server = Serve(options);
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server); }));
  EXPECT_EQ(LeadsAt(address).term(), 2u);
}

TEST_F(FollowTest, WithoutAWitnessNobodyTakesOver) {
  auto server = Serve(Options("first"));
  const std::string address = server->address();
  const FollowerOptions following = Following(address);
  auto follower = Follow(following);
  ASSERT_TRUE(Becomes([&] { return IsFollowed(*server); }));
  EXPECT_THAT(LeadsAt(address).notes(), HasSubstr("does not take over by itself"));
  server.reset();
  EXPECT_FALSE(InSync("first"));
  // It waits for a person. The old one leads when it comes back.
  EXPECT_FALSE(follower->elected().has_value());
  follower.reset();
  EXPECT_THAT(CoordinatorServer::Start(Options("standby")).status().ToString(),
              HasSubstr("the state directory of a standby of " + address));
  EXPECT_EQ(*CoordinatorToFollow(Dir("first"), "", false), "");
  server = Serve(Options("first"));
  EXPECT_EQ(LeadsAt(server->address()).term(), 2u);
  server.reset();
  // A person may force it.
  ServerOptions options = Options("standby");
  options.claim = Claim::kForce;
  server = Serve(options);
  EXPECT_GT(ReadLeadership(Dir("standby"))->term(), 1'000'000'000u);
  server.reset();
  options.claim = Claim::kOwn;
  EXPECT_NE(Serve(options), nullptr);
}

// The witness is the test here, so that the disk is full between a request and its answer.
TEST_F(FollowTest, AnElectedStandbyWhoseDiskIsFullLeadsOnceThereIsRoom) {
  auto server = Serve(Options("first"));
  const FollowerOptions following = Following(server->address());
  const auto follower = Follow(following);
  auto watching = Watch(server->address(), following.listen);
  ASSERT_TRUE(Becomes([&] { return watching->record().in_sync.size() == 2; }));
  ExpectSameStores("first", "standby");
  witness::Record record = watching->record();
  watching.reset();
  server.reset();

  const auto access = Access::Open({.addresses = {following.listen},
                                    .credentials_file = Dir("witness") + "/witness.pem",
                                    .name = "witness"},
                                   kPatience);
  ASSERT_TRUE(access.ok()) << access.status();
  const auto stub = v1::WitnessService::NewStub((*access)->Dial().channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(2 * kPatience));
  const auto stream = stub->Witness(&context);
  v1::WitnessSays says;
  says.mutable_hello()->set_name("witness");
  *says.mutable_hello()->mutable_record() = witness::ToProto(record);
  ASSERT_TRUE(stream->Write(says));
  v1::WitnessAsked asked;
  const auto answer = [&] {
    const StatusOr<witness::Request> request = witness::FromProto(asked);
    ASSERT_TRUE(request.ok()) << request.status();
    const witness::Decision decision =
        witness::Decide(*request, /*leader_is_heard=*/false, &record);
    EXPECT_TRUE(decision.granted) << decision.why;
    says.mutable_answer()->set_request(asked.request());
    says.mutable_answer()->set_granted(decision.granted);
    *says.mutable_answer()->mutable_record() = witness::ToProto(record);
    ASSERT_TRUE(stream->Write(says));
  };

  ASSERT_TRUE(stream->Read(&asked));
  ASSERT_TRUE(asked.has_elect()) << asked.ShortDebugString();
  // No file takes the place of a folder.
  const std::string path = Dir("standby") + "/leadership.json";
  const Deletions deletions(Dir("standby"));
  std::filesystem::rename(path, path + ".kept");
  std::filesystem::create_directory(path);
  answer();
  // When it was elected, and when it tries again.
  for (int i = 0; i < 2; ++i) deletions.Await("leadership.json.tmp-");
  EXPECT_FALSE(follower->elected().has_value());
  std::filesystem::remove(path);
  std::filesystem::rename(path + ".kept", path);

  ASSERT_TRUE(stream->Read(&asked));
  ASSERT_TRUE(asked.has_set_in_sync()) << asked.ShortDebugString();
  answer();
  ASSERT_TRUE(Becomes([&] { return follower->elected().has_value(); }));
  // If it ends before it serves, it leads at its next start.
  EXPECT_TRUE(ReadLeadership(Dir("standby"))->leads_alone());
  context.TryCancel();
}

}  // namespace
}  // namespace longhaul::coordinator
