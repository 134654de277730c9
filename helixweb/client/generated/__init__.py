"""What the server offers. Generated from the OpenAPI document; see helixweb.client.generator."""
