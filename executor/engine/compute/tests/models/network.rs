//! Layout of networks, and refusal of invalid ones.

use muster_compute::model::{Batch, BuildError, ImageShape, Network, zoo};

const FASHION: ImageShape = ImageShape {
    height: 28,
    width: 28,
    channels: 1,
};

fn cnn(channels: &[usize], dense: &[usize]) -> Network {
    zoo::cnn(FASHION, channels, dense, 10).unwrap()
}

#[test]
fn blocks_tile_the_arena_in_order() {
    let network = cnn(&[16, 32], &[64]);
    let table: Vec<(&str, &[usize])> = network
        .blocks()
        .iter()
        .map(|b| (b.name.as_str(), b.shape.as_slice()))
        .collect();
    let expected: [(&str, &[usize]); 8] = [
        ("conv1.weight", &[3, 3, 1, 16]),
        ("conv1.bias", &[16]),
        ("conv2.weight", &[3, 3, 16, 32]),
        ("conv2.bias", &[32]),
        ("dense1.weight", &[7 * 7 * 32, 64]),
        ("dense1.bias", &[64]),
        ("logits.weight", &[64, 10]),
        ("logits.bias", &[10]),
    ];
    assert_eq!(table, expected);
    let mut offset = 0;
    for block in network.blocks() {
        assert_eq!(block.offset, offset);
        assert_eq!(block.len, block.shape.iter().product::<usize>());
        offset += block.len;
    }
    assert_eq!(network.parameter_count(), offset);
}

/// The bytes are fixed: a change would break the guarantee that a seed gives the same network on
/// every machine and release.
#[test]
fn initial_parameters_depend_on_the_seed_only() {
    let network = cnn(&[4, 8], &[16]);
    let params = network.init(42);
    assert_eq!(params, network.init(42));
    assert_ne!(params, network.init(43));
    assert_eq!(
        params[..3].iter().map(|p| p.to_bits()).collect::<Vec<_>>(),
        PINNED
    );
    for block in network.blocks() {
        let values = &params[block.range()];
        if block.name.ends_with("bias") {
            assert!(values.iter().all(|b| *b == 0.0));
            continue;
        }
        let inputs: usize = block.shape[..block.shape.len() - 1].iter().product();
        let outputs = if block.name == "logits.weight" {
            block.shape[1]
        } else {
            0
        };
        let limit = (6.0 / (inputs + outputs) as f32).sqrt();
        let max = values.iter().fold(0.0_f32, |max, w| max.max(w.abs()));
        assert!(
            max <= limit && max > 0.8 * limit,
            "{}: {max} of {limit}",
            block.name
        );
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(
            mean.abs() < 4.0 * limit / (3.0 * values.len() as f32).sqrt(),
            "{}: mean {mean}",
            block.name
        );
    }
}

const PINNED: [u32; 3] = [1040866880, 1047341424, 1059761202];

fn refused(built: Result<Network, BuildError>) -> String {
    built.unwrap_err().to_string()
}

#[test]
fn invalid_networks_are_refused_with_a_reason() {
    assert_eq!(
        refused(zoo::mlp(FASHION, &[10, 0], 10)),
        "hidden[1] is 0; a layer has at least one output"
    );
    assert_eq!(
        refused(zoo::cnn(FASHION, &[0], &[], 10)),
        "channels[0] is 0; a layer has at least one output"
    );
    assert_eq!(
        refused(zoo::cnn(FASHION, &[8], &[0], 10)),
        "dense[0] is 0; a layer has at least one output"
    );
    assert_eq!(
        refused(zoo::cnn(FASHION, &[], &[5], 10)),
        "channels is empty; a CNN has at least one convolution"
    );
    assert_eq!(
        refused(zoo::cnn(FASHION, &[4; 5], &[], 10)),
        "channels[4] pools 2×2, but only 1×1 positions are left there"
    );
    assert_eq!(
        refused(zoo::mlp(FASHION, &[], 1)),
        "1 classes; a classifier has 2 to 16777216"
    );
    let flat = ImageShape {
        height: 0,
        ..FASHION
    };
    assert_eq!(
        refused(zoo::mlp(flat, &[], 10)),
        "the input shape 0×28×1 has a side of 0"
    );
    let huge = refused(zoo::mlp(FASHION, &[1 << 20, 1 << 20], 10));
    assert_eq!(
        huge,
        "dense2.weight would hold more than 2147483648 numbers"
    );
    let endless = ImageShape {
        height: usize::MAX,
        width: usize::MAX,
        channels: 3,
    };
    assert!(matches!(
        zoo::mlp(endless, &[], 10),
        Err(BuildError::TooLarge { .. })
    ));
    assert!(matches!(
        zoo::cnn(endless, &[3], &[], 10),
        Err(BuildError::TooLarge { .. })
    ));
}

#[test]
#[should_panic(expected = "the parameters of this network")]
fn parameters_of_another_network_are_refused() {
    let network = cnn(&[4], &[]);
    network.evaluate(
        &mut network.workspace(1, 1),
        &[0.0; 7],
        &Batch::classes(&[], &[]),
    );
}
