"""Programs of `torch.export`: the same attention as the model they were made of, but no code."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest
import timm
import torch
from torch import nn

from tests.backends.test_hostile_files import Evil, rewritten
from tests.backends.timm_zoo import attending, build, fused, picture, randomize, reference, same_attention
from viewer import open_image, open_model
from viewer.backends.model import Job
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.errors import InputError, ModelFileError

SMALL = {"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size": 64, "num_classes": 5}


def small(name="vit_tiny_patch16_224", is_fused=True, **arguments):
    with fused(is_fused):
        model = timm.create_model(name, pretrained=False, **{**SMALL, **arguments}).eval()
    randomize(model)
    return model


def export(model, path, size=(64, 64), **options):
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, *size),), **options), path)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return export(small(), tmp_path_factory.mktemp("exported") / "vit.pt2")


@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny_patch16_224",
        "vit_small_patch14_reg4_dinov2",
        "beit_base_patch16_224",
        "eva02_tiny_patch14_224",
    ],
)
@pytest.mark.parametrize("is_fused", [True, False])
def test_it_shows_what_its_model_does(name, is_fused, tmp_path):
    plain = attending(name, build(name, is_fused))
    tensor = picture(plain)
    path = export(plain.module, tmp_path / "m.pt2", tuple(tensor.shape[-2:]))
    expected = reference(build(name, is_fused=False), tensor)
    model = open_model(path)
    assert model.preprocessing.size == tuple(tensor.shape[-2:])
    record, wanted = model.attend(tensor), plain.attend(tensor)
    assert record.verified
    assert record.output_unchanged
    np.testing.assert_array_equal(record.output, wanted.output)
    same_attention(record, wanted, expected)
    again = model.attend(tensor + 0.1)
    assert again.verified


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "pvt_v2_b0"])
def test_programs_of_core_operators(name, tmp_path):
    """Decomposed to the operators that every other is made of, as runtimes want them."""
    sizes = {
        "vit_tiny_patch16_224": {"img_size": 64, "depth": 2},
        "swin_tiny_patch4_window7_224": {
            "img_size": 64, "window_size": 4, "embed_dim": 24, "depths": (2, 1), "num_heads": (2, 3)
        },
    }  # fmt: skip
    model = timm.create_model(name, pretrained=False, **sizes.get(name, {})).eval()
    randomize(model)
    tensor = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    program = torch.export.export(model, (tensor,)).run_decompositions()
    torch.export.save(program, tmp_path / "m.pt2")
    record = open_model(tmp_path / "m.pt2").attend(tensor)
    assert record.verified
    assert record.output_unchanged
    plain = TorchRunner(name, SizedModels(name, model, (64, 64)), "cpu").run(tensor, Job())
    for layer, other in zip(record.layers, plain.layers, strict=True):
        assert layer.name == other.name
        np.testing.assert_array_equal(layer.query_layout.positions, other.query_layout.positions)
        np.testing.assert_array_equal(layer.key_layout.positions, other.key_layout.positions)
        np.testing.assert_allclose(layer.matrix(0), other.matrix(0), rtol=0, atol=1e-5)


def test_what_it_does_not_say_is_said(program):
    model = open_model(program)
    assert model.preprocessing.assumed == (
        f"{program} does not say how it wants pictures; assumed: ImageNet mean and deviation, values 0 to 1, "
        "bicubic resizing."
    )
    record = model.attend(open_image(np.full((50, 70, 3), 200, np.uint8)))
    assert record.verified
    assert record.provenance.model == str(program)


def test_a_fixed_size_stays(program):
    with pytest.raises(InputError, match=r"takes pictures of 64x64 pixels, not 80x80"):
        open_model(program, image_size=80)
    with pytest.raises(
        InputError, match="is a file; a checkpoint is joined with the name of an architecture"
    ):
        open_model(program, weights=program)


def test_any_size_where_it_was_exported_so(tmp_path):
    auto = torch.export.Dim.AUTO
    model = small(dynamic_img_size=True, pos_embed="none")
    path = export(model, tmp_path / "any.pt2", dynamic_shapes=({2: auto, 3: auto},))
    opened = open_model(path, image_size=(48, 96))
    tensor = torch.randn(1, 3, 48, 96)
    record = opened.attend(tensor)
    assert record.grid == (3, 6)
    assert record.verified
    with torch.no_grad():
        np.testing.assert_allclose(record.output, model(tensor)[0].numpy(), rtol=0, atol=1e-6)
    assert opened.attend(torch.randn(1, 3, 64, 64)).grid == (4, 4)
    with pytest.raises(
        InputError, match="multiples of its 16x16 pixel patch, not 50x50; the nearest is 48x48"
    ):
        open_model(path, image_size=50)
    assert opened.why_not_whole == ""
    whole = open_model(path, image_size="whole").attend(np.zeros((60, 120, 3), np.uint8))
    assert whole.grid[1] > whole.grid[0]


def test_a_program_of_one_size_takes_no_picture_whole(program):
    why = open_model(program).why_not_whole
    assert why == f"{program} takes only pictures of 64x64 pixels, so it can't take them whole."
    with pytest.raises(InputError) as caught:
        open_model(program, image_size="whole")
    assert str(caught.value) == why


class Wrapped(nn.Module):
    """Parts without gradients and without casts, a buffer that is not saved, a constant, two results."""

    def __init__(self):
        super().__init__()
        self.inner = small()
        self.register_buffer("shift", torch.full((1, 3, 1, 1), 0.1), persistent=False)
        self.constant = torch.tensor(2.0)

    def forward(self, picture):
        with torch.no_grad():
            moved = picture + self.shift
        with torch.autocast("cpu", enabled=False):
            scaled = moved * self.constant * torch.tensor(0.5)
        logits = self.inner(scaled)
        return {"logits": logits, "best": logits.max(-1)[1]}


def test_parts_buffers_constants_and_several_results(tmp_path):
    model = Wrapped()
    tensor = torch.randn(1, 3, 64, 64)
    record = open_model(export(model, tmp_path / "m.pt2")).attend(tensor)
    assert record.verified
    with torch.no_grad():
        np.testing.assert_allclose(record.output, model(tensor)["logits"][0].numpy(), rtol=0, atol=1e-6)
    assert [layer.name for layer in record.layers] == ["inner.blocks.0.attn", "inner.blocks.1.attn"]


def test_a_transformer_encoder(tmp_path):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 48, 16, 16)
            layer = nn.TransformerEncoderLayer(48, 4, 96, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, picture):
            return self.layers(self.patches(picture).flatten(2).transpose(1, 2)).mean(1)

    torch.manual_seed(0)
    model = Encoder().eval()
    path = export(model, tmp_path / "m.pt2")
    tensor = torch.randn(1, 3, 64, 64)
    record = open_model(path).attend(tensor)
    assert len(record.layers) == 2
    assert record.verified
    assert record.output_unchanged
    with torch.no_grad():
        tokens = model.patches(tensor).flatten(2).mT.double()
        attention = model.layers.layers[0].self_attn.double()
        _, weights = attention(tokens, tokens, tokens, average_attn_weights=False)
    found = np.stack([record.layers[0].matrix(head) for head in range(4)])
    np.testing.assert_allclose(found, weights[0].numpy(), rtol=0, atol=1e-5)


# What is refused


def change_program(path, change):
    """Apply `change(program)` to the JSON of an archive."""

    def anew(name, data):
        if not name.endswith("models/vit.json") and not name.endswith("models/model.json"):
            return data
        told = json.loads(data)
        change(told)
        return json.dumps(told).encode()

    rewritten(path, anew)


@pytest.fixture
def copy(program, tmp_path):
    path = tmp_path / "vit.pt2"
    path.write_bytes(program.read_bytes())
    return path


def refusal(path):
    with pytest.raises(ModelFileError) as caught:
        open_model(path)
    return str(caught.value)


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.save.default",
        "torch.ops.mine.gelu.default",
        "torch.ops.aten._test_string_default.default",
        "torch.hub.load",
        "_operator.methodcaller",
        "builtins.eval",
        "#custom:evil",
    ],
)
def test_only_plain_operators_run(copy, target):
    change_program(copy, lambda told: told["graph_module"]["graph"]["nodes"][0].update(target=target))
    assert refusal(copy) == (
        f"{copy} is a program that uses {target}, and only PyTorch's plain tensor operators are run. "
        "Other ways: export the model to ONNX, or save its weights alone and give the architecture "
        "(--model NAME --weights FILE)."
    )


def test_an_operator_this_pytorch_does_not_know(copy):
    target = "torch.ops.aten.not_yet.default"
    change_program(copy, lambda told: told["graph_module"]["graph"]["nodes"][0].update(target=target))
    assert f"uses {target}, which this release of PyTorch does not know" in refusal(copy)


@pytest.mark.parametrize("table", ["weights", "constants"])
def test_pickled_tensors_are_not_opened(copy, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = io.BytesIO()
    torch.save(Evil(), evil)

    def spoil(name, data):
        if name.endswith(f"model_{table}_config.json"):
            entry = {"path_name": "evil", "is_param": True, "use_pickle": True, "tensor_meta": None}
            return json.dumps({"config": {**json.loads(data)["config"], "evil": entry}}).encode()
        return data

    rewritten(copy, spoil)
    with zipfile.ZipFile(copy, "a") as archive:
        archive.writestr(f"vit/data/{table}/evil", evil.getvalue())
    assert "holds a pickled Python object (evil), and opening such an object can run any code" in refusal(
        copy
    )
    assert not (tmp_path / "written").exists()


def test_pickled_example_inputs_and_expressions_are_not_looked_at(copy, tmp_path, monkeypatch):
    """PyTorch's own loader would run both."""
    monkeypatch.chdir(tmp_path)
    evil = io.BytesIO()
    torch.save(Evil(), evil)
    code = "__import__('os').system('touch written')"

    def expressions(told):
        graph = told["graph_module"]["graph"]
        for meta in graph["tensor_values"].values():
            meta["strides"] = [
                {"as_expr": {"expr_str": code, "hint": {"as_int": 1}}} for _ in meta["strides"]
            ]
        told["guards_code"] = [code]

    change_program(copy, expressions)
    rewritten(copy, lambda name, data: evil.getvalue() if "sample_inputs" in name else data)
    assert open_model(copy).attend(torch.randn(1, 3, 64, 64)).verified
    assert not (tmp_path / "written").exists()


def test_tensors_stay_inside_their_storages(copy):
    def enlarge(name, data):
        if not name.endswith("weights_config.json"):
            return data
        told = json.loads(data)
        told["config"]["cls_token"]["tensor_meta"]["storage_offset"] = {"as_int": 1}
        return json.dumps(told).encode()

    rewritten(copy, enlarge)
    assert "is a damaged exported program: cls_token reaches past its storage" in refusal(copy)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda name, data: data[: len(data) // 2] if name.endswith(".json") else data,
        lambda name, data: b"[1]" if name.endswith("model.json") else data,
        lambda name, data: data.replace(b'"graph"', b'"grape"') if name.endswith("model.json") else data,
        lambda name, data: (
            data.replace(b'"as_int": 3}', b'"as_int": -3}') if name.endswith(".json") else data
        ),
        lambda name, data: (
            data.replace(b'"as_tensor"', b'"as_thing"') if name.endswith("model.json") else data
        ),
        lambda name, data: data[:-3] if name.endswith("weight_0") else data,
    ],
)
def test_damaged_programs(copy, spoil):
    rewritten(copy, spoil)
    assert refusal(copy)


def test_a_program_that_stops_says_so(copy):
    def wider(told):
        for node in told["graph_module"]["graph"]["nodes"]:
            if node["target"] == "torch.ops.aten.reshape.default":
                node["inputs"][1]["arg"] = {"as_ints": [1, 3, 5]}
                return

    change_program(copy, wider)
    with pytest.raises(
        InputError, match=r"could not run on a picture of 64x64 pixels: shape '\[1, 3, 5\]' is"
    ):
        open_model(copy).attend(torch.zeros(1, 3, 64, 64))


@pytest.mark.parametrize(
    ("name", "reason"), [("nowhere", "'nowhere'"), ("gone", "what it returns is no tensor")]
)
def test_a_program_that_returns_nothing(copy, name, reason):
    def lose(told):
        told["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"]["as_tensor"]["name"] = name
        size = {"name": "dim", "arg": {"as_int": 2}, "kind": 1}
        of = {"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}
        node = {"target": "torch.ops.aten.sym_size.int", "inputs": [of, size], "metadata": {}}
        told["graph_module"]["graph"]["nodes"].append(
            {**node, "outputs": [{"as_sym_int": {"as_name": "gone"}}]}
        )

    change_program(copy, lose)
    with pytest.raises(InputError, match=f"could not run on a picture of 64x64 pixels: {reason}"):
        open_model(copy).attend(torch.zeros(1, 3, 64, 64))


def test_programs_of_other_formats(copy):
    change_program(copy, lambda told: told["schema_version"].update(major=7))
    assert (
        "is an exported program of format 7, and Patchreach reads format 8. Export the model again"
        in refusal(copy)
    )


@pytest.mark.parametrize(
    ("member", "sentence"),
    [
        ("serialized_exported_program.json", "was exported by a release of PyTorch before 2.7"),
        ("m/data/aotinductor/model/m.so", r"is a program compiled to machine code \(AOTInductor\)"),
    ],
)
def test_other_archives_of_the_same_suffix(tmp_path, member, sentence):
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, "{}")
        archive.writestr("m/archive_format", "pt2")
    with pytest.raises(ModelFileError, match=sentence):
        open_model(path)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, picture, other):
        return picture * self.scale + other


@pytest.mark.parametrize(
    ("model", "inputs", "sentence"),
    [
        (
            nn.Linear(4, 2),
            (torch.zeros(1, 4),),
            "takes float32 of shape (1, 4), not one colour picture (1, 3, height",
        ),
        (
            nn.Conv2d(1, 2, 3),
            (torch.zeros(1, 1, 8, 8),),
            "takes float32 of shape (1, 1, 8, 8), not one colour",
        ),
        (nn.Conv2d(3, 2, 3), (torch.zeros(2, 3, 8, 8),), "takes 2 pictures at once, not one"),
        (
            Two(),
            (torch.zeros(1, 3, 8, 8), torch.zeros(1)),
            "is an exported program with 2 inputs, not a single",
        ),
        (nn.Dropout(), (torch.zeros(1, 3, 8, 8),), "exported in training mode, in which dropout is at work"),
        (nn.ReLU(), (torch.zeros(1, 3, 8, 8),), "is a program without weights"),
    ],
)
def test_programs_that_take_no_picture(tmp_path, model, inputs, sentence):
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(model, inputs), path)
    assert sentence in refusal(path)
