// `longhaul ps`, `status`, `stop` and `steps`.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "tests/unit/cli/cli_test.h"

namespace longhaul::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, PsForPeoplePipesAndMachines) {
  EXPECT_THAT(Ask({"ps"}, true).out, HasSubstr("No runs yet"));
  control_.runs = {State("running", 7), State("done", 20)};
  control_.runs[1].set_run_id("older-1");
  const Outcome people = Ask({"ps"}, true);
  EXPECT_THAT(people.out, HasSubstr("RUN          STATE"));
  EXPECT_THAT(people.out, HasSubstr("7/20"));
  const Outcome pipe = Ask({"ps"});
  EXPECT_THAT(pipe.out, HasSubstr("\ntiny-abc123\trunning\t7/20\t2.5\t"));
  const auto json = nlohmann::json::parse(Ask({"ps", "--json"}).out);
  EXPECT_EQ(json["runs"][1]["run_id"], "older-1");
}

TEST_F(CliTest, PsListsFewOfTheRunsThatHaveEnded) {
  control_.runs = {State("running", 7)};
  control_.ended_left_out = 950;
  const Outcome table = Ask({"ps"});
  EXPECT_EQ(control_.list_request.most_ended(), 50u);
  EXPECT_EQ(table.err, "950 older runs have ended; longhaul ps --ended 1000 lists all\n");
  EXPECT_EQ(Ask({"ps", "--ended", "0"}).err,
            "950 older runs have ended; longhaul ps --ended 950 lists all\n");
  EXPECT_TRUE(control_.list_request.has_most_ended());
  EXPECT_EQ(Ask({"ps", "--json"}).err, "");
  EXPECT_FALSE(control_.list_request.has_most_ended()) << "programs get all";
  Ask({"ps", "--json", "--ended", "3"});
  EXPECT_EQ(control_.list_request.most_ended(), 3u);
}

TEST_F(CliTest, StatusTellsWhyAndWhatToDo) {
  control_.runs = {State("failed", 7)};
  control_.runs[0].set_reason("worker2 (stage 1) vanished");
  control_.runs[0].set_checkpoint_step(5);
  control_.runs[0].add_stages()->set_worker_name("worker\033[2J");
  const Outcome outcome = Ask({"status", "tiny-abc123"}, true);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("reason        worker2 (stage 1) vanished\n"));
  EXPECT_THAT(outcome.out, HasSubstr("what to do    `longhaul events tiny-abc123`"));
  EXPECT_THAT(outcome.out, HasSubstr("worker?[2J"));
  EXPECT_EQ(nlohmann::json::parse(Ask({"status", "tiny-abc123", "--json"}).out)["step"], 7);
  const Outcome unknown = Ask({"status", "zzz"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_EQ(unknown.err, "there is no run 'zzz'\n");
}

TEST_F(CliTest, Stop) {
  EXPECT_EQ(Ask({"stop", "a"}).out, "a stops after its step\n");
  EXPECT_EQ(Ask({"stop", "a", "--now"}).out, "a stops now\n");
  EXPECT_EQ(nlohmann::json::parse(Ask({"stop", "a", "--json"}).out)["message"],
            "a stops after its step");
}

// A call whose answer is lost is made again with its id, so that nothing is done twice.
TEST_F(CliTest, StopAsksAgainWithOneId) {
  control_.lost_answers = 2;
  const Outcome outcome = Ask({"stop", "a"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "a stops after its step\n");
  EXPECT_THAT(outcome.err, HasSubstr("an earlier try"));
  ASSERT_EQ(control_.request_ids.size(), 3u);
  EXPECT_EQ(control_.request_ids[0].size(), 32u);
  EXPECT_THAT(control_.request_ids, ::testing::Each(control_.request_ids[0]));
  // Another command is another call, unless the user says that it is the same.
  Ask({"stop", "a"});
  EXPECT_NE(control_.request_ids[3], control_.request_ids[0]);
  Ask({"stop", "a", "--request-id", control_.request_ids[0]});
  EXPECT_EQ(control_.request_ids[4], control_.request_ids[0]);
}

TEST_F(CliTest, StatusWithoutARunTellsWhoLeads) {
  using Standby = v1::LeadershipInfo::Standby;
  control_.info.set_version("1.2.3");
  control_.info.set_workers(7);
  v1::LeadershipInfo& leads = *control_.info.mutable_leadership();
  leads.set_address("one:7070");
  leads.set_term(5);
  leads.set_sure(true);
  EXPECT_EQ(Ask({"status"}).out,
            "leader   one:7070, term 5\n"
            "standby  none\n"
            "witness  none\n"
            "workers  7 connected; longhaul 1.2.3\n");
  leads.mutable_standby()->set_address("two:7070");
  leads.mutable_standby()->set_state(Standby::COPYING);
  leads.mutable_standby()->set_behind_changes(3);
  EXPECT_THAT(Ask({"status"}).out,
              HasSubstr("standby  two:7070 gets a copy of everything, 3 changes behind\n"
                        "witness  none, so the standby does not take over by itself\n"));
  leads.mutable_witness()->set_name("third");
  leads.mutable_witness()->set_heard_seconds(0.5);
  leads.set_sure(false);
  leads.set_why_unsure("nobody answers");
  leads.set_unstored(true);
  const std::string text = Ask({"status"}).out;
  EXPECT_THAT(text, HasSubstr("term 5; takes no changes now: nobody answers\n"));
  EXPECT_THAT(text, HasSubstr("witness  third, heard 500 ms ago\n"));
  EXPECT_THAT(text, HasSubstr("not stored yet"));
  EXPECT_EQ(nlohmann::json::parse(Ask({"status", "--json"}).out)["leadership"]["term"], 5);
}

TEST_F(CliTest, Replicas) {
  EXPECT_EQ(Ask({"replicas", "a", "3"}).out, "a goes on with 3\n");
  EXPECT_EQ(nlohmann::json::parse(Ask({"replicas", "a", "3", "--json"}).out)["message"],
            "a goes on with 3");
  EXPECT_EQ(Ask({"replicas", "a"}).code, 2);
  EXPECT_EQ(Ask({"replicas", "a", "many"}).code, 2);
  control_.runs = {State("running", 7), State("running", 7)};
  EXPECT_THAT(Ask({"ps"}).out, Not(HasSubstr("REPLICAS")));
  control_.runs[0].set_replicas(1);
  control_.runs[0].set_replicas_wanted(2);
  control_.runs[0].set_replicas_reason("1 of 2 replicas train");
  EXPECT_THAT(Ask({"ps"}).out, HasSubstr("STAGES\tREPLICAS\t"));
  EXPECT_THAT(Ask({"ps"}).out, HasSubstr("\t1/2\t"));
  EXPECT_THAT(Ask({"status", "tiny-abc123"}).out,
              HasSubstr("replicas\t1/2: 1 of 2 replicas train\n"));
}

TEST_F(CliTest, StepsKeepEveryBitOfTheLosses) {
  std::vector<double> losses = {1.0 / 3, 0.1 + 0.2, 5e-324};
  for (size_t i = 0; i < losses.size(); ++i) {
    v1::StepRecord step;
    step.set_step(i + 1);
    step.set_loss(losses[i]);
    control_.steps.push_back(step);
  }
  std::istringstream lines(Ask({"steps", "a", "--json"}).out);
  std::istringstream rows(Ask({"steps", "a"}).out);
  std::string line, row, cell;
  std::getline(rows, row);
  EXPECT_THAT(row, StartsWith("STEP\tEPOCH\tLOSS\t"));
  for (const double loss : losses) {
    ASSERT_TRUE(std::getline(lines, line) && std::getline(rows, row));
    EXPECT_EQ(nlohmann::json::parse(line)["loss"].get<double>(), loss);
    std::istringstream cells(row);
    for (int i = 0; i < 3; ++i) std::getline(cells, cell, '\t');
    EXPECT_EQ(std::strtod(cell.c_str(), nullptr), loss);
  }
  EXPECT_THAT(Ask({"steps", "a", "--after", "2", "--json"}).out, StartsWith("{\"step\":3,"));
}

TEST_F(CliTest, StepsBeginWithTheValidationBeforeTheFirst) {
  v1::StepRecord before, first;
  before.set_has_validation(true);
  before.set_validation_loss(4.5);
  before.set_clean_validation_loss(4.25);
  first.set_step(1);
  first.set_loss(4);
  control_.steps = {before, first};
  std::istringstream rows(Ask({"steps", "a"}).out);
  std::string row;
  std::getline(rows, row);
  EXPECT_THAT(row, StartsWith("STEP\tEPOCH\tLOSS\tVALIDATION\tCLEAN VALIDATION\t"));
  std::getline(rows, row);
  EXPECT_THAT(row, StartsWith("0\t0\t-\t4.5\t4.25\t"));
  std::getline(rows, row);
  EXPECT_THAT(row, StartsWith("1\t0\t4\t-\t-\t"));
  std::istringstream lines(Ask({"steps", "a", "--json"}).out);
  std::string line;
  std::getline(lines, line);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["clean_validation_loss"], 4.25);
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_THAT(Ask({"steps", "a", "--after", "0", "--json"}).out, StartsWith("{\"step\":1,"));
}

// The row of the newest step is there before its validation.
TEST_F(CliTest, StepsThatAreFollowedHaveTheirValidation) {
  std::vector<v1::StepRecord> rows(3);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].set_step(i + 1);
  control_.runs = {State("running", 2)};
  control_.runs[0].set_run_id("a");
  const auto validated = [](v1::StepRecord row, double loss) {
    row.set_has_validation(true);
    row.set_validation_loss(loss);
    return row;
  };
  int calls = 0;
  control_.before_get_run = [&] {
    ++calls;
    if (calls <= 2) {  // the command's own, and the first look
      control_.steps = {rows[0], rows[1]};
    } else {
      control_.steps = {rows[0], validated(rows[1], 4.5), validated(rows[2], 3.5)};
      control_.runs[0].set_state("done");
    }
  };
  std::istringstream lines(Ask({"steps", "a", "--follow", "--json"}).out);
  std::vector<std::string> got;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    got.push_back(fmt::format("{} {}", json["step"].dump(), json["validation_loss"].dump()));
  }
  EXPECT_THAT(got, ElementsAre("1 0.0", "2 4.5", "3 3.5"));
}

}  // namespace
}  // namespace longhaul::cli
