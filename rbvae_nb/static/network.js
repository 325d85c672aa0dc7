// The networks of rbvae-nb in the browser (or in node): weight files read, codes to images, images to codes.
//
//     const file = await load('srbvae-decoder.safetensors'), draw = generator(file);
//     const image = draw({z: new Float32Array(48), e: file.tensors.e_ref.data});  // 3·H·H numbers in [-1, 1]
//
// Everything is a Float32Array in torch's order: channel, row, column. One image at a time, in float32 as in torch.

/** {about, tensors} of the file at `url`. */
export async function load(url) {
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(`expected a weight file at ${url}, got HTTP ${answer.status}; check that it was exported to there`);
    return parse(await answer.arrayBuffer());
}

/** {about, tensors} of a safetensors file in an ArrayBuffer: its JSON, and {name: {shape, data}}. */
export function parse(buffer) {
    try { return read(buffer); }
    catch (error) { throw new Error(`expected a whole weight file of rbvae-nb, got something else or a part of one (${error.message}); export or copy it again`); }
}

function read(buffer) {  // 8 bytes: length of the header; the header, JSON; the numbers
    const size = buffer.byteLength, data = size < 8 ? Infinity : 8 + Number(new DataView(buffer).getBigUint64(0, true));
    if (data > size) throw new Error(`${size} bytes are shorter than its header`);
    const {__metadata__, ...entries} = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, data - 8))), tensors = {};
    if (!__metadata__?.rbvae_nb) throw new Error('no rbvae_nb in its metadata');
    for (const [name, {dtype, shape, data_offsets: [start, end]}] of Object.entries(entries)) {
        const bytes = {F16: 2, F32: 4}[dtype];
        if (!bytes) throw new Error(`${name} is ${dtype}, neither F16 nor F32`);
        if (end - start !== bytes * shape.reduce((a, b) => a * b, 1)) throw new Error(`${name} has ${end - start} bytes for ${shape.join('×')} numbers`);
        if (data + end > size) throw new Error(`${size} bytes end before ${name} does`);
        const numbers = buffer.slice(data + start, data + end);
        tensors[name] = {shape, data: bytes === 4 ? new Float32Array(numbers) : fromHalf(new Uint16Array(numbers))};
    }
    return {about: JSON.parse(__metadata__.rbvae_nb), tensors};
}

function fromHalf(bits) {  // float16: a sign, 5 bits of exponent, 10 of fraction
    const out = new Float32Array(bits.length);
    for (let i = 0; i < bits.length; i++) {
        const exponent = bits[i] >> 10 & 31, fraction = (bits[i] & 1023) / 1024;
        const size = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? (1 + fraction) * 2 ** (exponent - 15) : fraction * 2 ** -14;
        out[i] = bits[i] >> 15 ? -size : size;
    }
    return out;
}

/** A function of {z, e} (or {z}, where the model has one code) that draws an image, 3·H·H numbers in [-1, 1]. */
export function generator(file) {
    const {image_size, codes, generator_channels: channels, n_convs, latent_norm} = settings(file);
    const dims = Object.values(codes), dim = dims.reduce((a, b) => a + b), coarsest = image_size / 2 ** (channels.length - 1);
    const first = latent_norm ? 1 : 0, layers = 'generator.layers';  // places in torch's nn.Sequential
    const start = layer(file, `${layers}.${first}`, channels[0] * coarsest ** 2, dim);
    const stages = channels.slice(1).map((c, i) => stage(file, `${layers}.${first + 5 + 2 * i}`, channels[i], c, n_convs, 3));
    const toRGB = layer(file, `${layers}.${first + 2 + 2 * channels.length}`, 3, channels.at(-1), 1, 1);
    return given => {
        let h = new Float32Array(dim), size = coarsest, at = 0;
        for (const [c, d] of Object.entries(codes)) {
            if (given[c]?.length !== d) throw new Error(`expected ${d} numbers as the code ${c}, got ${given[c]?.length ?? 'none'}`);
            h.set(given[c], at);
            at += d;
        }
        if (latent_norm) pixelNorm(h, 1);
        h = pixelNorm(leaky(multiply(start, h, 1)), size ** 2);
        for (const convs of stages) {
            size *= 2;
            convs.forEach((conv, i) => { h = pixelNorm(leaky(convolve(conv, h, size, i ? 1 : 2)), size ** 2); });
        }
        return multiply(toRGB, h, size ** 2).map(Math.tanh);
    };
}

/** A function of an image, 3·H·H numbers in [-1, 1], that gives {z, e} (or {z}): the means of the posteriors. */
export function encoders(file) {
    const {image_size, codes, channels, n_convs, patch} = settings(file), fine = image_size / patch;
    const inputs = [3 * patch ** 2, ...[...channels].reverse()], coarsest = fine / 2 ** (channels.length - 1);
    const towers = Object.entries(codes).map(([c, dim]) => {
        const layers = `encoder_${c}.tower.layers`;
        const stages = inputs.slice(1).map((out, i) => stage(file, `${layers}.${1 + 2 * i}`, inputs[i], out, n_convs, 2));
        const last = `${layers}.${1 + 2 * channels.length}`, rows = file.tensors[`${last}.weight`]?.shape[0] === dim ? dim : 2 * dim;
        const end = layer(file, last, rows, channels[0] * coarsest ** 2);
        return [c, stages, {...end, out: dim}];  // means come first; an export has left the log-variances out
    });
    return image => {
        if (image.length !== 3 * image_size ** 2) throw new Error(`expected an image of 3·${image_size}·${image_size} numbers, got ${image.length}`);
        return Object.fromEntries(towers.map(([c, stages, end]) => {
            let h = unshuffle(image, image_size, patch), size = fine;
            stages.forEach((convs, i) => {
                if (i) { h = halve(h, size); size /= 2; }
                for (const conv of convs) h = leaky(convolve(conv, h, size, 1));
            });
            return [c, multiply(end, h, 1)];
        }));
    };
}

function settings({about}) {  // the arguments of the model; codes: {name: dimensions}, in the order of the generator
    const a = {...about?.arguments}, channels = [a.channels].flat(), generator_channels = [a.generator_channels ?? channels].flat();
    const codes = Object.fromEntries(['z', 'e'].filter(c => a[`dim_${c}`]).map(c => [c, a[`dim_${c}`]]));
    const counts = [a.image_size, a.n_convs, a.patch, ...channels, ...generator_channels, ...Object.values(codes)];
    if (!codes.z || !counts.every(n => Number.isInteger(n) && n > 0))
        throw new Error(`expected dim_z, image_size, channels, n_convs and patch among the arguments of ${about?.method}, got ${JSON.stringify(about?.arguments)}`);
    return {...a, codes, channels, generator_channels};
}

function layer({tensors}, name, ...shape) {  // weight and bias, of the shape that the arguments ask for
    for (const [part, wanted] of [['weight', shape], ['bias', shape.slice(0, 1)]]) {
        const got = tensors[`${name}.${part}`]?.shape.join('×') ?? 'none';
        if (got !== wanted.join('×')) throw new Error(`expected ${name}.${part} of shape ${wanted.join('×')} by the arguments of the model, got ${got}; export it again`);
    }
    return {weight: tensors[`${name}.weight`].data, bias: tensors[`${name}.bias`].data, out: shape[0], inner: shape[1]};
}

function stage(file, name, inner, out, n_convs, step) {  // n_convs 3×3 convolutions; `step` modules from one to the next
    return Array.from({length: n_convs}, (_, i) => layer(file, `${name}.${i * step}`, out, i ? out : inner, 3, 3));
}

function multiply({weight, bias, out, inner}, h, pixels) {  // linear layer (one pixel) or 1×1 convolution
    const result = new Float32Array(out * pixels);
    for (let o = 0; o < out; o++) {
        const row = result.subarray(o * pixels, (o + 1) * pixels).fill(bias[o]);
        for (let c = 0; c < inner; c++) {
            const w = weight[o * inner + c];
            for (let i = 0; i < pixels; i++) row[i] += w * h[c * pixels + i];
        }
    }
    return result;
}

function convolve({weight, bias, out, inner}, h, size, up) {  // 3×3, zero padding; up = 2 enlarges h to `size` first
    size |= 0;  // lets the engine index with integers: twice as fast
    const side = size + 2, two = 2 * side, padded = pad(h, inner, size, up), result = new Float32Array(out * size ** 2);
    for (let o = 0, k = 0; o < out; o++) {
        result.fill(bias[o], o * size ** 2, (o + 1) * size ** 2);
        for (let c = 0; c < inner; c++, k += 9) {  // a kernel's nine weights stay at hand while it passes over the map
            const w0 = weight[k], w1 = weight[k + 1], w2 = weight[k + 2], w3 = weight[k + 3], w4 = weight[k + 4],
                w5 = weight[k + 5], w6 = weight[k + 6], w7 = weight[k + 7], w8 = weight[k + 8];
            for (let y = 0; y < size; y++) {
                let i = (c * side + y) * side, j = (o * size + y) * size;
                for (const end = j + size; j < end; i++, j++)
                    result[j] += w0 * padded[i] + w1 * padded[i + 1] + w2 * padded[i + 2]
                        + w3 * padded[i + side] + w4 * padded[i + side + 1] + w5 * padded[i + side + 2]
                        + w6 * padded[i + two] + w7 * padded[i + two + 1] + w8 * padded[i + two + 2];
            }
        }
    }
    return result;
}

function pad(h, channels, size, up) {  // a border of zeros; each pixel `up` times in both directions (nearest neighbour)
    const side = size + 2, small = size / up, padded = new Float32Array(channels * side ** 2);
    for (let c = 0; c < channels; c++)
        for (let y = 0; y < size; y++)
            for (let x = 0; x < size; x++) padded[(c * side + y + 1) * side + x + 1] = h[(c * small + Math.floor(y / up)) * small + Math.floor(x / up)];
    return padded;
}

function leaky(h) {  // LeakyReLU 0.2, in place
    for (let i = 0; i < h.length; i++) if (h[i] < 0) h[i] *= .2;
    return h;
}

function pixelNorm(h, pixels) {  // divide by the root mean square over channels, in place
    for (let p = 0; p < pixels; p++) {
        let sum = 0;
        for (let i = p; i < h.length; i += pixels) sum += h[i] ** 2;
        const scale = 1 / Math.sqrt(sum * pixels / h.length + 1e-6);
        for (let i = p; i < h.length; i += pixels) h[i] *= scale;
    }
    return h;
}

function unshuffle(image, size, patch) {  // blocks of patch×patch pixels into channels, as torch's PixelUnshuffle
    const out = new Float32Array(image.length), fine = size / patch;
    for (let i = 0, j = 0; i < 3 * patch ** 2; i++) {  // i: channel of the image, row in the block, column in the block
        const c = Math.floor(i / patch ** 2), row = Math.floor(i / patch) % patch, column = i % patch;
        for (let y = 0; y < fine; y++)
            for (let x = 0; x < fine; x++) out[j++] = image[(c * size + y * patch + row) * size + x * patch + column];
    }
    return out;
}

function halve(h, size) {  // means of 2×2 blocks
    const half = size / 2, out = new Float32Array(h.length / 4);
    for (let j = 0; j < out.length; j++) {
        const i = 2 * (j % half) + 2 * size * Math.floor(j / half);  // rows of all channels lie below each other
        out[j] = (h[i] + h[i + 1] + h[i + size] + h[i + size + 1]) / 4;
    }
    return out;
}
