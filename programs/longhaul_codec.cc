// longhaul-codec: the codecs on files, for researchers. Exit codes: 0 done, 1 failed, 2 wrong
// usage.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>
#include <new>

#include "base/flags/command_line.h"
#include "codec/python/host.h"
#include "codec/registry.h"
#include "codec/tool/commands.h"
#include "deploy/python_program.h"

namespace longhaul::codec {
namespace {

enum ExitCode { kDone = 0, kFailed = 1, kWrongUsage = 2 };

using Command = StatusOr<std::string> (*)(const ToolOptions&);

class Tool {
 public:
  Tool() : app_("Encode, decode and measure tensors in .npy files.", "longhaul-codec") {
    SetUpCommandLine(app_);
    app_.require_subcommand(1);
    app_.footer("Codecs:\n" + DescribeCodecs());

    CLI::App* encode = Add("encode", "Encode an array: x.npy to x.lh", &EncodeFile);
    AddInput(encode, "Array (.npy: fp32, fp16; bf16 as uint16 with --dtype bf16)");
    AddOutput(encode, "Encoded tensor (.lh)");
    AddCodec(encode);
    AddDtype(encode, "The array's dtype");
    AddSeed(encode);

    CLI::App* decode = Add("decode", "Decode a tensor: x.lh to y.npy", &DecodeFile);
    AddInput(decode, "Encoded tensor (.lh)");
    AddOutput(decode, "Array (.npy, three dimensions)");
    AddDtype(decode, "The array's dtype; default: that of what was encoded");

    CLI::App* inspect =
        Add("inspect", "Show an encoded tensor's header and sections", &InspectFile);
    AddInput(inspect, "Encoded tensor (.lh)");

    CLI::App* error = Add("error", "Measure what a codec loses of an array", &MeasureError);
    AddInput(error, "Array (.npy)");
    AddCodec(error);
    AddDtype(error, "The array's dtype");
    error
        ->add_option("--previous", options_.previous,
                     "Array that was sent of the same samples before, for codecs that remember "
                     "them (aqsgd); without it they are sent whole")
        ->type_name("FILE");
    AddSeed(error);

    AddComparison(Add("errors", "Compare what codecs lose of the same arrays", &CompareCodecs))
        ->add_option("--codec", options_.codecs,
                     "Codec string, repeatable; default: a choice of all")
        ->check(CodecValidator())
        ->type_name("CODEC");
    AddComparison(Add(
        "ablate", "Compare variants of tah and taco: tiles, shares of bits, transforms", &Ablate));

    CLI::App* bench =
        Add("bench", "Measure a codec's speed, on the CPU or on a GPU, beside a copy", &Bench);
    AddCodec(bench);
    AddDtype(bench, "The array's dtype");
    bench->add_option("--elements", options_.elements, "Elements of the tensor")
        ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 31))
        ->capture_default_str();
    bench->add_option("--channels", options_.channels, "Channels of the tensor")
        ->check(CLI::Range(1u, 1u << 20))
        ->capture_default_str();
    bench->add_option("--samples", options_.samples, "Samples that these elements are")
        ->check(CLI::Range(1u, 1u << 20))
        ->capture_default_str();
    bench->add_option("--device", options_.device, "Where: cpu, cuda or cuda:N")
        ->check(CLI::Validator(
            [](const std::string& text) {
              return text == "cpu" || CudaIndex(text).has_value()
                         ? std::string()
                         : "expected cpu, cuda or cuda:N, got '" + text + "'";
            },
            ""))
        ->type_name("DEVICE")
        ->capture_default_str();
    bench->add_option("--data", options_.data, "Contents: normal, or with one outlier in 97 values")
        ->check(CLI::IsMember({"normal", "outliers"}).description(""))
        ->type_name("normal|outliers")
        ->capture_default_str();
    bench->add_option("--ids", options_.ids, "Tokens of predict: random ones, or all equal")
        ->check(CLI::IsMember({"random", "equal"}).description(""))
        ->type_name("random|equal")
        ->capture_default_str();
    bench->add_option("--vocabulary", options_.vocabulary, "Ids that predict's tables know")
        ->check(CLI::Range(1u, 1u << 24))
        ->capture_default_str();
    bench->add_option("--repeats", options_.repeats, "Timed rounds; the median counts")
        ->check(CLI::Range(1u, 10000u))
        ->capture_default_str();
    bench->add_option("--threads", options_.threads, "Threads that encode and decode")
        ->check(CLI::Range(1u, 256u))
        ->capture_default_str();
    bench
        ->add_option("--kernels", options_.kernels,
                     "Instruction set; default: the best of this CPU")
        ->type_name("AVX3|AVX2|SSE4|...");
  }

  int Run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app_.exit(error) == 0 ? kDone : kWrongUsage;
    }
    const StatusOr<std::string> result = RunCommand();
    if (!result.ok()) {
      fmt::print(stderr, "longhaul-codec: {}\n", Message(result.status()));
      return kFailed;
    }
    fmt::print("{}", *result);
    if (std::fflush(stdout) != 0) {
      fmt::print(stderr, "longhaul-codec: standard output cannot be written\n");
      return kFailed;
    }
    return kDone;
  }

 private:
  // The user names classes of Python by --codec, so their modules may run.
  StatusOr<std::string> RunCommand() {
    std::vector<std::string> modules;
    std::vector<std::string> texts = options_.codecs;
    texts.push_back(options_.codec);
    for (const std::string& text : texts) {
      LH_ASSIGN_OR_RETURN(const auto codec, ParseCodec(text));
      if (std::string module = python::ModuleOf(*codec); !module.empty()) {
        modules.push_back(std::move(module));
      }
    }
    if (modules.empty()) return command_(options_);
    LH_ASSIGN_OR_RETURN(const PythonProgram program, FindPythonProgram(PythonCodecPart()));
    const python::Host host(
        {.modules = std::move(modules), .python = program.python, .main = program.main.string()});
    options_.python = &host;
    return command_(options_);
  }
  CLI::App* Add(const std::string& name, const std::string& what, Command command) {
    CLI::App* sub = app_.add_subcommand(name, what);
    sub->add_flag("--json", options_.json, "Print one JSON document");
    sub->callback([this, command] { command_ = command; });
    return sub;
  }
  void AddInput(CLI::App* sub, const std::string& what) {
    sub->add_option("INPUT", options_.input, what)->required()->type_name("FILE");
  }
  void AddOutput(CLI::App* sub, const std::string& what) {
    sub->add_option("-o,--output", options_.output, what)->required()->type_name("FILE");
  }
  static CLI::Validator CodecValidator() {
    return CLI::Validator(
        [](const std::string& text) {
          const Status status = ParseCodec(text).status();
          return status.ok() ? std::string() : std::string(Message(status));
        },
        "");
  }
  CLI::App* AddComparison(CLI::App* sub) {
    sub->add_option("INPUT", options_.inputs,
                    "Arrays (.npy); default: normal, Student's t and outlier-channel tensors")
        ->type_name("FILE");
    sub->add_flag("--summary", options_.summary, "One table over all arrays");
    AddDtype(sub, "The arrays' dtype");
    AddSeed(sub);
    return sub;
  }
  void AddCodec(CLI::App* sub) {
    sub->add_option("--codec", options_.codec, "Codec string; see the list of codecs in --help")
        ->check(CodecValidator())
        ->type_name("CODEC")
        ->capture_default_str();
  }
  void AddDtype(CLI::App* sub, const std::string& what) {
    static const std::map<std::string, Dtype> kNames = {
        {"fp32", Dtype::kF32}, {"fp16", Dtype::kF16}, {"bf16", Dtype::kBf16}};
    sub->add_option_function<std::string>(
           "--dtype", [this](const std::string& name) { options_.dtype = kNames.at(name); }, what)
        ->check(CLI::IsMember({"fp32", "fp16", "bf16"}).description(""))
        ->type_name("fp32|fp16|bf16");
  }
  void AddSeed(CLI::App* sub) {
    sub->add_option("--seed", options_.seed, "Seed of stochastic rounding")
        ->check(WholeNumber())
        ->capture_default_str();
  }

  CLI::App app_;
  ToolOptions options_;
  Command command_ = nullptr;
};

}  // namespace
}  // namespace longhaul::codec

int main(int argc, char** argv) {
  try {
    return longhaul::codec::Tool().Run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("longhaul-codec: not enough memory for this tensor\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "longhaul-codec: %s\n", error.what());
  }
  return 1;
}
