#include "coordinator/rpc/rights.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>

#include <set>
#include <string>

#include "longhaul/v1/member.pb.h"
#include "longhaul/v1/observe.pb.h"
#include "longhaul/v1/standby.pb.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {
namespace {

Caller Of(Role role) {
  return {Member{"me", role, role == Role::kWorker ? "id" : ""}, absl::InfiniteFuture()};
}

// A method that is added without a right does not pass by unseen.
TEST(RightsTest, EveryMethodHasARow) {
  v1::JoinRequest member_proto;
  v1::Hello worker_proto;
  v1::RunStatus control_proto;
  v1::StoreChange standby_proto;
  v1::MetricsReply observe_proto;
  std::multiset<std::string> methods, rows;
  for (const char* name : {"ControlService", "WorkerService", "MemberService", "StandbyService",
                           "SeatService", "WitnessService", "ObserveService"}) {
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
        std::string("longhaul.v1.") + name);
    ASSERT_NE(service, nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i) methods.insert(service->method(i)->name());
  }
  methods.erase("Join");     // by its token's secret
  methods.erase("GetTerm");  // of everybody
  for (const Right& right : Rights()) {
    rows.insert(std::string(right.name.substr(0, right.name.find(' '))));
  }
  EXPECT_EQ(rows, methods);
}

TEST(RightsTest, RolesMayWhatTheirRowsSay) {
  for (const Right& right : Rights()) {
    EXPECT_EQ(CheckRole(Of(Role::kWorker), right.call).ok(), right.worker) << right.name;
    EXPECT_EQ(CheckRole(Of(Role::kUser), right.call).ok(), right.user) << right.name;
    EXPECT_EQ(CheckRole(Of(Role::kAdmin), right.call).ok(), right.admin) << right.name;
    EXPECT_EQ(CheckRole(Of(Role::kWitness), right.call).ok(), right.witness) << right.name;
    EXPECT_TRUE(CheckRole(Caller(), right.call).ok());
  }
  // What the rest stands on: workers neither command nor see, users make no members.
  for (const Call call : {Call::kSubmit, Call::kStopRun, Call::kGetRun, Call::kFetchBlob}) {
    EXPECT_FALSE(RightOf(call).worker);
  }
  for (const Call call : {Call::kCreateToken, Call::kRevokeMember, Call::kSession, Call::kFollow,
                          Call::kFetchCopy, Call::kGiveCopy, Call::kListAudit}) {
    EXPECT_FALSE(RightOf(call).user);
  }
  EXPECT_FALSE(RightOf(Call::kGiveCopy).worker);
}

TEST(RightsTest, RunsAreOfTheirOwners) {
  v1::RunStatus run;
  run.set_owner("me");
  EXPECT_TRUE(IsOwn(Of(Role::kUser), run));
  run.set_owner("you");
  EXPECT_FALSE(IsOwn(Of(Role::kUser), run));
  EXPECT_TRUE(IsOwn(Of(Role::kAdmin), run));
  EXPECT_TRUE(IsOwn(Caller(), run));
  run.set_owner("");  // of before there were members
  EXPECT_FALSE(IsOwn(Of(Role::kUser), run));
}

}  // namespace
}  // namespace longhaul::coordinator
