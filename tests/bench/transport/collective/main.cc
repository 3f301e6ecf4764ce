// longhaul-bench-collective: collectives beside each other, on GPUs or in host memory. Exit codes:
// 0 done, 1 failed or a result is wrong, 2 wrong usage.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "base/cuda/module.h"
#include "base/file.h"
#include "base/flags/command_line.h"
#include "base/units.h"
#include "tests/bench/transport/collective/ranks.h"
#include "tests/bench/transport/collective/report.h"

namespace longhaul::collective::bench {
namespace {

enum ExitCode { kDone = 0, kFailed = 1, kWrongUsage = 2 };
constexpr char kProgram[] = "longhaul-bench-collective";

struct Flags {
  Options options;
  std::string device = "cuda", operations = "all", dtype = "bf16";
  std::string min_bytes = "4KiB", max_bytes = "1GiB", batch_limit = "500ms";
  std::string variants = "native,zip,switcher,native";
  uint32_t child_rank = 0;
  int child_page = -1;
};

void AddSizes(CLI::App& app, Flags* flags) {
  Options& o = flags->options;
  app.add_option("--operation", flags->operations,
                 "all_reduce, reduce_scatter, all_gather, all_to_all, with commas between, or all "
                 "that the other flags allow")
      ->type_name("LIST")
      ->capture_default_str();
  app.add_option("--min-bytes", flags->min_bytes,
                 "Least size: bytes of the largest tensor that a rank has in the call (of an "
                 "all-gather the output, of a reduce-scatter the input), as nccl-tests count")
      ->capture_default_str();
  app.add_option("--max-bytes", flags->max_bytes, "Greatest size")->capture_default_str();
  app.add_option("--factor", o.factor, "From one size to the next")
      ->check(CLI::Range(2u, 1024u))
      ->capture_default_str();
  app.add_option("--dtype", flags->dtype, "fp32, fp16 or bf16")->capture_default_str();
  app.add_flag("--in-place", o.in_place, "Inputs and outputs share memory");
  app.add_option("--data", o.data,
                 "normal, student_t (3 degrees of freedom), zeros, or an .npy file (fp32, fp16, "
                 "bf16 as uint16), repeated to the size")
      ->capture_default_str();
  Routing& r = o.routing;
  app.add_option("--zipf", r.exponent,
                 "An all-to-all of tokens that choose experts by Zipf's law with this exponent, "
                 "instead of sizes")
      ->check(CLI::Range(0.01, 10.0));
  app.add_option("--experts", r.experts, "Experts, as many on each rank")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  app.add_option("--tokens", r.tokens, "Tokens of each rank")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--hidden", r.hidden, "Elements of a token")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20))
      ->capture_default_str();
}

void AddTimes(CLI::App& app, Flags* flags) {
  Options& o = flags->options;
  app.add_option("--iterations", o.iterations, "Calls of a batch, which is timed as a whole")
      ->check(CLI::Range(1u, 100000u))
      ->capture_default_str();
  app.add_option("--batch-limit", flags->batch_limit,
                 "Large tensors have fewer calls in a batch, so that it takes no longer")
      ->capture_default_str();
  app.add_option("--warmup", o.warmup, "Calls before the first batch of a size")
      ->check(CLI::Range(1u, 100000u))
      ->capture_default_str();
  app.add_option("--rounds", o.rounds, "Rounds; each has one batch of every variant")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  app.add_flag("--graph", o.graph, "Record each call in a CUDA graph once, and replay that");
  app.add_option("--replays", o.replays, "Replays of a batch")
      ->check(CLI::Range(1u, 1000000u))
      ->capture_default_str();
}

void AddRest(CLI::App& app, Flags* flags) {
  Options& o = flags->options;
  app.add_option("--device", flags->device, "cuda (rank r has GPU r) or cpu")
      ->check(CLI::IsMember({"cuda", "cpu"}).description(""))
      ->type_name("cuda|cpu")
      ->capture_default_str();
  app.add_option("--ranks", o.ranks, "Ranks")->check(CLI::Range(1u, 64u))->capture_default_str();
  app.add_flag("--processes", o.processes, "Ranks are processes, not threads of one");
  app.add_option(
         "--variants", flags->variants,
         "What is measured in every round, in this order: native, exact (sums in fp32), mapped "
         "(through host memory that GPUs map), zip, taco, switcher, with options "
         "(zip:exchange=static|sizes|bounded,piece=4Mi,room=0.05,over=native|mapped; "
         "taco:format=e4m3|e5m2|int8,block=256,piece=4Mi,over=native|mapped; "
         "switcher:with=zip+taco,margin=0.05). A second native shows what differences mean "
         "nothing")
      ->type_name("LIST")
      ->capture_default_str();
  app.add_option("--nccl", o.nccl, "libnccl.so.2; default: that beside LibTorch, or the system's")
      ->type_name("FILE");
  app.add_option("--cache", o.cache, "Keep what switchers probe there, and read it again")
      ->type_name("FOLDER");
  app.add_option("--csv", o.csv, "Write the rows there")->type_name("FILE");
  app.add_option("--json", o.json, "Write the rows there, with the machine and every round")
      ->type_name("FILE");
  const std::string own;  // of the processes that this one starts: not in the help
  app.add_option("--child-rank", flags->child_rank)->group(own);
  app.add_option("--child-page", flags->child_page)->group(own);
}

Status Parse(Flags* flags) {
  Options& o = flags->options;
  o.cuda = flags->device == "cuda";
  LH_ASSIGN_OR_RETURN(o.operations, ParseOperations(flags->operations));
  LH_ASSIGN_OR_RETURN(o.dtype, ParseDtype(flags->dtype));
  LH_ASSIGN_OR_RETURN(o.min_bytes, ParseBytes(flags->min_bytes));
  LH_ASSIGN_OR_RETURN(o.max_bytes, ParseBytes(flags->max_bytes));
  LH_ASSIGN_OR_RETURN(o.batch_limit, ParseDuration(flags->batch_limit));
  LH_ASSIGN_OR_RETURN(o.variants, ParseVariants(flags->variants));
  return Check(&o, flags->operations == "all");
}

StatusOr<const cuda::DeviceTable*> OpenGpus(const Options& options) {
  LH_ASSIGN_OR_RETURN(const cuda::DeviceTable* const table,
                      cuda::LoadModule(cuda::DefaultModulePath()));
  // Says what is missing, also where there is no driver.
  LH_ASSIGN_OR_RETURN(const cuda::Device first, cuda::Device::Open(table, 0));
  int count = 0;
  LH_RETURN_IF_ERROR(first.Check(table->device_count(&count), "counting GPUs"));
  if (static_cast<uint32_t>(count) < options.ranks) {
    return FailedPrecondition("--ranks {}: expected a GPU for each rank, found {}", options.ranks,
                              count);
  }
  return table;
}

StatusOr<std::vector<Row>> MeasureAndShow(const Options& options, const cuda::DeviceTable* table,
                                          const std::vector<std::string>& arguments) {
  LH_ASSIGN_OR_RETURN(const nlohmann::ordered_json machine, DescribeMachine(options, table));
  std::vector<Row> all;
  std::string native;
  nlohmann::ordered_json switchers = nlohmann::ordered_json::object();
  const Listener listener{.ready =
                              [&](const std::string& description) {
                                native = description;
                                fmt::print("{}", TableHead(options, native));
                              },
                          .rows =
                              [&](const std::vector<Row>& rows) {
                                for (const Row& row : rows) fmt::print("{}", TableLine(row));
                                std::fflush(stdout);
                                all.insert(all.end(), rows.begin(), rows.end());
                              },
                          .decided =
                              [&](const std::string& variant, const std::string& decisions) {
                                fmt::print("\n{}: {}", variant, decisions);
                                switchers[variant] = decisions;
                              }};
  LH_RETURN_IF_ERROR(options.processes ? RunProcesses(options, table, arguments, listener)
                                       : RunThreads(options, table, listener));
  if (!options.csv.empty()) LH_RETURN_IF_ERROR(WriteFileAtomic(options.csv, Csv(options, all)));
  if (!options.json.empty()) {
    LH_RETURN_IF_ERROR(WriteFileAtomic(
        options.json, ToJson(options, all, machine, native, switchers).dump(2) + "\n"));
  }
  return all;
}

int Fail(const Status& status, ExitCode code) {
  fmt::print(stderr, "{}: {}\n", kProgram, Message(status));
  return code;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Measures collectives: NCCL's, or those in host memory, beside compressed ones. Variants "
      "take "
      "turns in every round, and every result is compared with a reference.",
      kProgram);
  SetUpCommandLine(app);
  AddRest(app, &flags);
  AddSizes(app, &flags);
  AddTimes(app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kWrongUsage;
  }
  if (const Status parsed = Parse(&flags); !parsed.ok()) return Fail(parsed, kWrongUsage);
  const Options& options = flags.options;
  const cuda::DeviceTable* table = nullptr;
  if (options.cuda) {
    const StatusOr<const cuda::DeviceTable*> opened = OpenGpus(options);
    if (!opened.ok()) return Fail(opened.status(), kFailed);
    table = *opened;
  }
  if (flags.child_page >= 0) {
    const Status done = RunChild(options, table, flags.child_rank, flags.child_page);
    return done.ok() ? kDone : Fail(done, kFailed);
  }
  const StatusOr<std::vector<Row>> rows =
      MeasureAndShow(options, table, std::vector<std::string>(argv + 1, argv + argc));
  if (!rows.ok()) return Fail(rows.status(), kFailed);
  uint64_t wrong = 0;
  for (const Row& row : *rows) wrong += row.outcome.wrong;
  if (wrong == 0) return kDone;
  return Fail(DataLoss("{} elements are wrong", wrong), kFailed);
}

}  // namespace
}  // namespace longhaul::collective::bench

int main(int argc, char** argv) {
  try {
    return longhaul::collective::bench::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "longhaul-bench-collective: %s\n", error.what());
  }
  return 1;
}
