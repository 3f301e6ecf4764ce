// What every command shares: usage, help, how the coordinator and the token are found.
#include "base/version.h"
#include "tests/unit/cli/cli_test.h"

namespace longhaul::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, WrongUsageIsTwoAndHelpIsZero) {
  EXPECT_EQ(Run({}).code, 2);
  EXPECT_EQ(Run({"watch"}).code, 2);
  EXPECT_EQ(Run({"ps", "--no-such-flag"}).code, 2);
  EXPECT_EQ(Run({"stop", "a", "b"}).code, 2);
  EXPECT_EQ(Run({"--help"}).code, 0);
  EXPECT_EQ(Run({"submit", "--help"}).code, 0);
  EXPECT_THAT(Run({"submit", "--help"}).out, HasSubstr("--set"));
  EXPECT_EQ(Run({"--version"}).code, 0);
  EXPECT_EQ(Run({"--version"}).out, "longhaul " + std::string(Version()) + "\n");
  const Outcome typo = Run({"subimt", "run.yaml"});
  EXPECT_EQ(typo.code, 2);
  EXPECT_EQ(typo.err,
            "longhaul: unknown command 'subimt'; did you mean 'submit'?\n"
            "Run longhaul --help for more.\n");
}

TEST_F(CliTest, WrongUsageIsNamedWhereItIs) {
  const auto first_line = [&](std::vector<std::string> arguments) {
    const Outcome outcome = Run(std::move(arguments));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    return outcome.err.substr(0, outcome.err.find('\n'));
  };
  EXPECT_EQ(first_line({"ps", "--jsn"}),
            "longhaul ps: unknown option '--jsn'; did you mean '--json'?");
  EXPECT_EQ(first_line({"--coordinater", "a:1", "ps"}),
            "longhaul ps: unknown option '--coordinater'; did you mean '--coordinator'?");
  EXPECT_EQ(first_line({"--coordinator", "a:1", "pss"}),
            "longhaul: unknown command 'pss'; did you mean 'ps'?");
  EXPECT_EQ(first_line({"submit"}), "longhaul submit: FILE is required");
  EXPECT_EQ(first_line({"submit", "a", "b"}), "longhaul submit: 'b' is one argument too many");
  EXPECT_EQ(first_line({"submit", "--rseume"}),
            "longhaul submit: unknown option '--rseume'; did you mean '--resume'?");
  EXPECT_EQ(first_line({"steps", "a", "--after", "-1"}),
            "longhaul steps: --after: expected a whole number, got '-1'");
  EXPECT_EQ(first_line({"cluster", "upp"}),
            "longhaul cluster: unknown command 'upp'; did you mean 'up'?");
  EXPECT_THAT(first_line({"cluster"}), StartsWith("longhaul cluster: expected a command: up, "));
  EXPECT_EQ(first_line({"export", "a"}),
            "longhaul export: expected --out with a folder to make, --to with an address, or both");
  EXPECT_EQ(first_line({"export", "a", "--out", "b", "--overwrite"}),
            "longhaul export: --overwrite is for --to; --out makes a new folder");
  EXPECT_EQ(first_line({"data"}), "longhaul data: expected a command: prepare, show");
  EXPECT_THAT(first_line({"ps", "\033[2J"}), Not(HasSubstr("\033")));
}

TEST_F(CliTest, ConnectionFlagsMayStandBeforeTheCommand) {
  control_.token = kToken;
  control_.Start();
  control_.runs = {State("running", 7)};
  const Outcome before =
      Run({"--coordinator", control_.address(), "--token-file", Path("token"), "--json", "ps"});
  EXPECT_EQ(before.code, 0) << before.err;
  EXPECT_THAT(before.out, StartsWith("{"));
  EXPECT_EQ(Run({"--coordinator", control_.address(), "ps", "--token-file", Path("token")}).code,
            0);
  // What stands after the command wins.
  EXPECT_EQ(Run({"--coordinator", "127.0.0.1:1", "--token-file", Path("nowhere"), "ps",
                 "--coordinator", control_.address(), "--token-file", Path("token")})
                .code,
            0);
  // A local cluster is not reached through a coordinator.
  const Outcome cluster = Run({"--coordinator", control_.address(), "cluster", "status"});
  EXPECT_EQ(cluster.code, 2);
  EXPECT_THAT(cluster.err, HasSubstr("cluster excludes --coordinator"));
}

TEST_F(CliTest, SweepSaysWhatIsWrongBeforeItNeedsRights) {
  EXPECT_EQ(Run({"sweep"}).code, 2);
  EXPECT_EQ(Run({"sweep", "sweep.yaml"}).code, 2);
  // It has a cluster of its own.
  EXPECT_EQ(Run({"sweep", "a", "--out", "b", "--coordinator", "a:1"}).code, 2);
  const Outcome before = Run({"--coordinator", "a:1", "sweep", "a", "--out", "b"});
  EXPECT_EQ(before.code, 2);
  EXPECT_THAT(before.err, HasSubstr("sweep excludes --coordinator"));

  const Outcome missing = Run({"sweep", Path("nowhere.yaml"), "--out", Path("out")});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr("nowhere.yaml"));
  Write("sweep.yaml", "base: nowhere.yaml\nrates: [fast]\nlinks: { a: { forward: nnoe } }\n");
  const Outcome wrong = Run({"sweep", Path("sweep.yaml"), "--out", Path("out")});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("sweep.yaml:2:9: rates: "));
  EXPECT_THAT(wrong.err, HasSubstr("sweep.yaml:3:24: links.a.forward: "));
  Write("sweep.yaml",
        "base: nowhere.yaml\nrates: 1mbit\nlinks: { a: { forward: none, backward: none } }\n");
  EXPECT_THAT(Run({"sweep", Path("sweep.yaml"), "--out", Path("out")}).err,
              HasSubstr("sweep.yaml: base: "));
  Write("sweep.yaml",
        "base: run.yaml\nrates: 1mbit\nlinks: { a: { forward: none, backward: none } }\n");
  EXPECT_THAT(Run({"sweep", Path("sweep.yaml"), "--out", Path("out")}).err,
              HasSubstr("add `workers: 4` to the sweep file"));
  EXPECT_THAT(
      Run({"sweep", Path("sweep.yaml"), "--out", Path("out"), "--set", "train.stepps=2"}).err,
      HasSubstr("--set train.stepps=2: unknown key"));
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
}

TEST_F(CliTest, EveryCommandHasHelp) {
  for (const char* command : {"submit", "plan", "watch", "ps", "status", "stop", "steps", "logs",
                              "events", "workers", "sweep", "cluster", "data"}) {
    EXPECT_EQ(Run({command, "--help"}).code, 0) << command;
    EXPECT_THAT(Run({"--help"}).out, HasSubstr(command));
  }
}

TEST_F(CliTest, NoCoordinatorIsKnown) {
  const Outcome outcome = Run({"ps"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no coordinator is known"));
  EXPECT_THAT(outcome.err, HasSubstr("--coordinator HOST:PORT"));
  EXPECT_THAT(outcome.err, HasSubstr("longhaul cluster up"));
  const Outcome bad = Run({"ps", "--coordinator", "nonsense"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, StartsWith("longhaul ps: --coordinator: address 'nonsense': expected "));
  setenv("LONGHAUL_COORDINATOR", "nonsense", 1);
  const Outcome variable = Run({"ps"});
  EXPECT_EQ(variable.code, 1);
  EXPECT_THAT(variable.err, StartsWith("LONGHAUL_COORDINATOR: address 'nonsense': expected "));
}

TEST_F(CliTest, TheCoordinatorIsAway) {
  control_.Start();
  const std::string address = control_.address();
  control_.Stop();
  setenv("LONGHAUL_COORDINATOR", address.c_str(), 1);
  const Outcome outcome = Run({"ps"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, StartsWith("cannot reach the coordinator at " + address +
                                      " (from LONGHAUL_COORDINATOR): "));
  EXPECT_THAT(outcome.err, HasSubstr("Check that longhaul-coordinator runs there"));
}

TEST_F(CliTest, TokensByFlagAndVariable) {
  control_.token = kToken;
  const Outcome none = Ask({"ps"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("refused a call without a token"));
  EXPECT_THAT(none.err, HasSubstr("--token-file"));
  EXPECT_EQ(Ask({"ps", "--token-file", Path("token")}).code, 0);
  setenv("LONGHAUL_TOKEN_FILE", Path("token").c_str(), 1);
  EXPECT_EQ(Ask({"ps"}).code, 0);
  Write("other", "ffffffffffffffffffffffffffffffff");
  const Outcome wrong = Ask({"ps", "--token-file", Path("other")});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err,
              HasSubstr("refused the token of " + Path("other") + " (from --token-file)"));
  const Outcome missing = Ask({"ps", "--token-file", Path("nowhere")});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr(Path("nowhere")));
}

}  // namespace
}  // namespace longhaul::cli
